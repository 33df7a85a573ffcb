// Watches the ConfigMaps of a namespace with client-go's own reflector. It answers any request with JSON: the content of
// its store, and the number of its lists and watches.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Factor by which retries are faster than the reflector's default. Otherwise most faults of a series would hit a waiting
// reflector and have no effect.
const haste = 20

type hurried struct{ clock.RealClock }

func (c hurried) NewTimer(d time.Duration) clock.Timer {
	return hurriedTimer{c.RealClock.NewTimer(d / haste)}
}

type hurriedTimer struct{ clock.Timer }

func (t hurriedTimer) Reset(d time.Duration) bool { return t.Timer.Reset(d / haste) }

type told struct {
	Version string            `json:"version"`
	Lists   int64             `json:"lists"`
	Watches int64             `json:"watches"`
	Objects map[string]string `json:"objects"`
}

func main() {
	host, namespace := os.Args[1], os.Args[2]
	scheme := runtime.NewScheme()
	must(corev1.AddToScheme(scheme))
	client, err := rest.RESTClientFor(&rest.Config{
		Host:    host,
		APIPath: "/api",
		QPS:     -1,
		ContentConfig: rest.ContentConfig{
			GroupVersion:         &corev1.SchemeGroupVersion,
			NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
		},
	})
	must(err)
	var lists, watches atomic.Int64
	parameters := metav1.ParameterCodec
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.Continue == "" {
				lists.Add(1)
			}
			found := &corev1.ConfigMapList{}
			err := client.Get().Namespace(namespace).Resource("configmaps").VersionedParams(&options, parameters).Do(ctx).Into(found)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			// A watch that begins with all objects counts as a list.
			if options.SendInitialEvents != nil {
				lists.Add(1)
			} else {
				watches.Add(1)
			}
			options.Watch = true
			return client.Get().Namespace(namespace).Resource("configmaps").VersionedParams(&options, parameters).Watch(ctx)
		},
	}
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	reflector := cache.NewReflectorWithOptions(source, &corev1.ConfigMap{}, store, cache.ReflectorOptions{Clock: hurried{}})
	go reflector.RunWithContext(context.Background())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Printf("listening on http://%s\n", listener.Addr())
	must(http.Serve(listener, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		objects := map[string]string{}
		for _, item := range store.List() {
			found := item.(*corev1.ConfigMap)
			objects[found.Name] = string(found.UID) + " " + found.ResourceVersion
		}
		must(json.NewEncoder(response).Encode(told{reflector.LastSyncResourceVersion(), lists.Load(), watches.Load(), objects}))
	})))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
