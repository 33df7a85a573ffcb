// Reads Kubernetes objects, one JSON document a line, and answers each with one line of JSON: the verdict of kstatus, the
// library with which Flux and other tools compute the status of an object.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type answer struct {
	Status  string `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := answers.Encode(answerTo(lines.Bytes())); err != nil {
			fail(err)
		}
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
}

func answerTo(line []byte) answer {
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(line); err != nil {
		return answer{Error: err.Error()}
	}
	result, err := status.Compute(&object)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Status: result.Status.String(), Message: result.Message}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
