// Reads questions, one JSON document a line, and answers each with one line of JSON: which of the conditions of a resource
// template an object meets. The libraries are those of Argo Workflows, in its versions: a condition is a label selector whose
// keys are paths of gjson, and each of its requirements stands alone
// (https://github.com/argoproj/argo-workflows/blob/v3.7.2/workflow/executor/resource.go).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/labels"
)

type question struct {
	Object  json.RawMessage `json:"object"`
	Success string          `json:"success"`
	Failure string          `json:"failure"`
}

type answer struct {
	// Succeeded is true if all requirements of the success condition hold.
	Succeeded bool `json:"succeeded"`
	// Failed has the requirements of the failure condition that hold. One is enough.
	Failed []string `json:"failed"`
	Error  string   `json:"error,omitempty"`
}

type paths struct{ object []byte }

func (p paths) Has(path string) bool { return gjson.GetBytes(p.object, path).Exists() }

func (p paths) Get(path string) string { return gjson.GetBytes(p.object, path).String() }

func (p paths) Lookup(path string) (string, bool) { return p.Get(path), p.Has(path) }

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
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	success, err := labels.ParseToRequirements(asked.Success)
	if err != nil {
		return answer{Error: err.Error()}
	}
	failure, err := labels.ParseToRequirements(asked.Failure)
	if err != nil {
		return answer{Error: err.Error()}
	}
	object := paths{asked.Object}
	result := answer{Succeeded: true, Failed: []string{}}
	for _, one := range success {
		result.Succeeded = result.Succeeded && one.Matches(object)
	}
	for _, one := range failure {
		if one.Matches(object) {
			result.Failed = append(result.Failed, one.String())
		}
	}
	return result
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
