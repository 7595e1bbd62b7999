package testenv

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// PrometheusTool gives the path of "prometheus" or "promtool".
func PrometheusTool(tb testing.TB, name string) string {
	tb.Helper()
	return DebianProgram(tb, "prometheus", "bin", name)
}

// DebianProgram gives the path of a Debian package's program: of the system, or where scripts/setup.sh has unpacked the
// package; dir is its folder in /usr. Where it is missing the test is skipped.
func DebianProgram(tb testing.TB, pkg, dir, name string) string {
	tb.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	path := filepath.Join(Root(), "build", pkg, "usr", dir, name)
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("%s is not here: scripts/setup.sh %s gets it", name, pkg)
	}
	return path
}

// Prometheus is a real one, which scrapes what its configuration says.
type Prometheus struct {
	tb  testing.TB
	url string
}

// StartPrometheus starts one that scrapes the addresses of each job and evaluates the rules of deploy/prometheus, both
// four times a second.
func StartPrometheus(tb testing.TB, jobs map[string][]string) *Prometheus {
	tb.Helper()
	program, dir := PrometheusTool(tb, "prometheus"), tb.TempDir()
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: "+
		"250ms}\nrule_files: [%q]\nscrape_configs:\n",
		filepath.Join(Root(), "deploy", "prometheus", "farlog.rules.yml"))
	for job, addresses := range jobs {
		fmt.Fprintf(&config, "- job_name: %s\n  static_configs: [{targets: [%s]}]\n", job,
			strings.Join(addresses, ", "))
	}
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config.String()), 0o644); err != nil {
		tb.Fatal(err)
	}
	address := freeAddress(tb, "127.0.0.1")
	p := &Prometheus{tb: tb, url: "http://" + address}
	process := startCommand(tb, exec.Command(program, "--config.file="+path,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn"))
	Until(tb, "Prometheus is ready", func() (bool, error) {
		if process.HasEnded() {
			return false, fmt.Errorf("it ended: %s", process.Log())
		}
		response, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false, nil
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	return p
}

// Series counts the series that an expression has had in the time since.
func (p *Prometheus) Series(expr string, since time.Time) (int, error) {
	now := time.Now()
	var answer struct {
		Result []json.RawMessage `json:"result"`
	}
	err := p.get("/api/v1/query_range", url.Values{
		"query": {expr}, "start": {fmt.Sprintf("%.3f", float64(since.UnixMilli())/1e3)},
		"end": {fmt.Sprintf("%.3f", float64(now.UnixMilli())/1e3)}, "step": {"0.25"},
	}, &answer)
	return len(answer.Result), err
}

// Names are those of all metrics that it has ever seen.
func (p *Prometheus) Names() (names []string, err error) {
	return names, p.get("/api/v1/label/__name__/values", nil, &names)
}

// RuleErrors are what went wrong with rules, by name.
func (p *Prometheus) RuleErrors() (map[string]string, error) {
	var answer struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string } `json:"rules"`
		} `json:"groups"`
	}
	if err := p.get("/api/v1/rules", nil, &answer); err != nil {
		return nil, err
	}
	failures := map[string]string{}
	for _, group := range answer.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				failures[rule.Name] = rule.Health + " " + rule.LastError
			}
		}
	}
	return failures, nil
}

func (p *Prometheus) get(path string, query url.Values, into any) error {
	response, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s %s: %s: %s", path, query.Get("query"), response.Status, raw)
	}
	return json.Unmarshal(answer.Data, into)
}
