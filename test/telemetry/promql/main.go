// Reads questions, one JSON document a line, and answers each with one line of JSON from Prometheus' own parser and engine.
// An answer has the series that a PromQL expression selects, and the number of resulting series. The given series are the
// only input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

type question struct {
	Expr string `json:"expr"`
	// Input of the evaluation, at the time of the last samples.
	Series []series `json:"series"`
}

type series struct {
	Labels map[string]string `json:"labels"`
	// One value a minute.
	Values []float64 `json:"values"`
}

type answer struct {
	Selectors []selector `json:"selectors"`
	// Number of resulting series.
	Results int    `json:"results"`
	Error   string `json:"error,omitempty"`
}

type selector struct {
	Metric   string    `json:"metric"`
	Matchers []matcher `json:"matchers"`
	// Labels that the surrounding aggregation keeps.
	By []string `json:"by"`
}

type matcher struct {
	Label string `json:"label"`
	// =, !=, =~ or !~.
	Type  string `json:"type"`
	Value string `json:"value"`
}

// Like Prometheus without feature flags.
var prometheus = parser.NewParser(parser.Options{})

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
	expr, err := prometheus.ParseExpr(asked.Expr)
	if err != nil {
		return answer{Error: err.Error()}
	}
	results, err := evaluate(asked)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Selectors: selectorsOf(expr), Results: results}
}

func selectorsOf(expr parser.Expr) []selector {
	found := []selector{}
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		vector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		one := selector{Metric: vector.Name, Matchers: []matcher{}, By: []string{}}
		for _, m := range vector.LabelMatchers {
			if m.Name != labels.MetricName {
				one.Matchers = append(one.Matchers, matcher{m.Name, m.Type.String(), m.Value})
			}
		}
		for _, around := range path {
			if aggregate, ok := around.(*parser.AggregateExpr); ok && !aggregate.Without {
				one.By = append(one.By, aggregate.Grouping...)
			}
		}
		found = append(found, one)
		return nil
	})
	return found
}

func evaluate(asked question) (int, error) {
	start := time.Unix(1_700_000_000, 0)
	at := start
	stored := world{}
	for _, one := range asked.Series {
		samples := []promql.FPoint{}
		for i, value := range one.Values {
			at = start.Add(time.Duration(i) * time.Minute)
			samples = append(samples, promql.FPoint{T: at.UnixMilli(), F: value})
		}
		metric := labels.FromMap(one.Labels)
		stored = append(stored, promql.NewStorageSeries(promql.Series{Metric: metric, Floats: samples}))
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: prometheus})
	ctx := context.Background()
	querier := &storage.MockQuerier{SelectMockFunction: stored.selected}
	query, err := engine.NewInstantQuery(ctx, &storage.MockQueryable{MockQuerier: querier}, nil, asked.Expr, at)
	if err != nil {
		return 0, err
	}
	defer query.Close()
	vector, err := query.Exec(ctx).Vector()
	return len(vector), err
}

// Queryable with only the given series.
type world []storage.Series

func (w world) selected(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := []storage.Series{}
	for _, one := range w {
		if matchesAll(one.Labels(), matchers) {
			found = append(found, one)
		}
	}
	return &seriesSet{SeriesSet: storage.EmptySeriesSet(), left: found}
}

func matchesAll(metric labels.Labels, matchers []*labels.Matcher) bool {
	for _, one := range matchers {
		if !one.Matches(metric.Get(one.Name)) {
			return false
		}
	}
	return true
}

// Iterates over the series without errors and warnings.
type seriesSet struct {
	storage.SeriesSet
	current storage.Series
	left    []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.current, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series { return s.current }

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
