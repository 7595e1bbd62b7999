package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

func deployed(parts ...string) string {
	return filepath.Join(append([]string{testenv.Root(), "deploy"}, parts...)...)
}

func TestDashboards_AreThoseInDeploy(t *testing.T) {
	files, err := filepath.Glob(deployed("grafana", "*.json"))
	if err != nil || len(files) != len(All()) {
		t.Errorf("deploy/grafana has %d files, expected %d: %v", len(files), len(All()), err)
	}
	for _, one := range All() {
		want, err := one.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(deployed("grafana", one.Name+".json")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("deploy/grafana/%s.json is not what this tree makes: make generate (%v)", one.Name, err)
		}
	}
}

// model is what of Grafana's dashboard model must be right for a page to be shown.
type model struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Datasource  struct{ Type, UID string }
		FieldConfig struct{ Defaults struct{ Unit string } }
		Targets     []struct{ RefID, Expr, LegendFormat string }
	}
}

// units are those of Grafana that these pages use.
var units = map[string]bool{"s": true, "bytes": true, "binBps": true, "ops": true, "percentunit": true, "short": true}

var variable = regexp.MustCompile(`\$\{?(\w+)`)

func TestDashboards_AreWellFormed(t *testing.T) {
	for _, one := range All() {
		raw, err := one.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var m model
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{"__rate_interval": true}
		for _, variable := range m.Templating.List {
			known[variable.Name] = true
		}
		if !known["datasource"] || m.UID == "" || m.SchemaVersion == 0 || len(m.Panels) < 4 {
			t.Errorf("%s: no data source, id, version or panels", one.Name)
		}
		if title := m.Panels[0].Title; title != "Log lag" {
			t.Errorf("%s begins with %q: log lag comes first", one.Name, title)
		}
		taken, ids := map[string]string{}, map[int]bool{}
		for _, panel := range m.Panels {
			where := one.Name + "/" + panel.Title
			if panel.Title == "" || ids[panel.ID] {
				t.Errorf("%s: no title, or id %d twice", where, panel.ID)
			}
			ids[panel.ID] = true
			at := panel.GridPos
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					cell := fmt.Sprint(x, "/", y)
					if taken[cell] != "" || x >= gridColumns {
						t.Errorf("%s lies over %q, or beyond the page, at %s", where, taken[cell], cell)
					}
					taken[cell] = panel.Title
				}
			}
			if panel.Type == "row" {
				continue
			}
			if panel.Datasource.UID != "${datasource}" || !units[panel.FieldConfig.Defaults.Unit] ||
				len(panel.Targets) == 0 {
				t.Errorf("%s: data source %q, unit %q, %d queries", where, panel.Datasource.UID,
					panel.FieldConfig.Defaults.Unit, len(panel.Targets))
			}
			for _, target := range panel.Targets {
				if target.RefID == "" || panel.Type == kindGraph && target.LegendFormat == "" {
					t.Errorf("%s: %s: no name of the query or of its lines", where, target.Expr)
				}
				for _, used := range variable.FindAllStringSubmatch(target.Expr, -1) {
					if !known[used[1]] {
						t.Errorf("%s: %s: unknown variable %s", where, target.Expr, used[1])
					}
				}
			}
		}
	}
}

// severalTell are metrics that more than one process exports of the same thing: a writer's by the target and the host
// agent of its host, a stream's by each control plane.
var severalTell, toldOnce = regexp.MustCompile(`\bfarlog_(writer|stream)_`),
	regexp.MustCompile(`\b(max|min|count) (without \(instance, job\)|by \(stream[a-z, ]*\)) ` +
		`\((rate\(|increase\()?farlog_(writer|stream)_`)

func TestDashboards_CountOnceWhatSeveralTell(t *testing.T) {
	count := 0
	for _, page := range All() {
		for _, row := range page.Rows {
			for _, panel := range row.Panels {
				for _, query := range panel.Queries {
					all, once := len(severalTell.FindAllString(query.Expr, -1)),
						len(toldOnce.FindAllString(query.Expr, -1))
					if count += all; all != once {
						t.Errorf("%s/%s: %s: what several processes export is counted more than once: max or min by "+
							"(stream) first", page.Name, panel.Title, query.Expr)
					}
				}
			}
		}
	}
	if count < 20 {
		t.Errorf("%d such metrics are on the pages", count)
	}
}

type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
}

type ruleTests struct {
	Tests []struct {
		AlertRuleTest []struct {
			Alertname string           `json:"alertname"`
			ExpAlerts []map[string]any `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	}
}

// Every alert says what to do, and is tested both when it must be silent and when it must fire.
func TestRules_EachAlertIsExplainedAndTested(t *testing.T) {
	var rules ruleFile
	read(t, deployed("prometheus", "farlog.rules.yml"), &rules)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, path := range ruleTestFiles(t) {
		var tests ruleTests
		read(t, path, &tests)
		for _, test := range tests.Tests {
			for _, one := range test.AlertRuleTest {
				fires[one.Alertname] = fires[one.Alertname] || len(one.ExpAlerts) > 0
				silent[one.Alertname] = silent[one.Alertname] || len(one.ExpAlerts) == 0
			}
		}
	}
	count := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			count++
			if !fires[rule.Alert] || !silent[rule.Alert] {
				t.Errorf("%s: tested when it fires: %v, when it is silent: %v", rule.Alert, fires[rule.Alert],
					silent[rule.Alert])
			}
			if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" ||
				rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s: severity %q, annotations %v", rule.Alert, severity, rule.Annotations)
			}
		}
	}
	if count < 20 {
		t.Errorf("%d alerts are in the file", count)
	}
}

var counterInRule = regexp.MustCompile(`farlog_[a-z_]+_total`)

// What an alert counts is on a dashboard, so that whoever is woken sees since when, and how much.
func TestRules_WhatTheyCountIsOnADashboard(t *testing.T) {
	var rules ruleFile
	read(t, deployed("prometheus", "farlog.rules.yml"), &rules)
	shown := ""
	paths, err := filepath.Glob(deployed("grafana", "*.json"))
	for _, path := range paths {
		raw, readErr := os.ReadFile(path)
		err = errors.Join(err, readErr)
		shown += string(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			for _, counter := range counterInRule.FindAllString(rule.Expr, -1) {
				if !strings.Contains(shown, counter) {
					t.Errorf("%s: %s is on no dashboard", rule.Alert, counter)
				}
			}
		}
	}
}

func ruleTestFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(deployed("prometheus", "farlog.rules*.test.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%q are there, expected 3 files: %v", files, err)
	}
	return files
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestRules_PassPromtool(t *testing.T) {
	testenv.SkipWhenShort(t)
	promtool := testenv.PrometheusTool(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", deployed("prometheus", "farlog.rules.yml")},
		{"check", "config", deployed("prometheus", "prometheus.yml")},
		append([]string{"test", "rules"}, ruleTestFiles(t)...),
	} {
		if output, err := exec.Command(promtool, args...).CombinedOutput(); err != nil ||
			!strings.Contains(string(output), "SUCCESS") {
			t.Errorf("promtool %v: %v\n%s", args[:2], err, output)
		}
	}
}
