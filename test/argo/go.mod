module berth.dev/test/argo

go 1.24.0

require (
	github.com/tidwall/gjson v1.18.0
	k8s.io/apimachinery v0.33.1
)

require (
	github.com/go-logr/logr v1.4.2 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.0 // indirect
	k8s.io/klog/v2 v2.130.1 // indirect
	k8s.io/utils v0.0.0-20241104100929-3ea5e8cea738 // indirect
)
