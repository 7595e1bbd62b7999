// Package chart tests deploy/helm by Helm's own code: it lints, renders and checks values as helm does, and Kubernetes'
// types read what is rendered. It is a module of its own, so that these libraries are none of farlog's.
package chart

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../../.."
	chartPath = root + "/deploy/helm/farlog"
)

var update = flag.Bool("update", false, "write the fields that nobody can change as those of this version")

type values = map[string]any

// everything are values that turn all on.
var everything = values{
	"control": values{
		"replicas": 3, "etcdEndpoints": []any{"https://etcd:2379"}, "etcdSecret": "etcd",
		"service": values{"type": "LoadBalancer", "annotations": values{"internal": "true"}},
		"env":     values{"FARLOG_LEASE": "10s"},
		"storage": values{"size": "1Gi", "className": "fast"},
	},
	"drain": values{"env": values{"FARLOG_STORE_VERIFY": "12h"}},
	"archive": values{
		"enabled": true, "url": "s3://worm/desk7", "retain": "6y", "endpoint": "https://s3.example.com",
		"region": "eu-1", "credentialsSecret": "s3", "env": values{"FARLOG_POLL": "1s"},
	},
	"image": values{"pullSecrets": []any{values{"name": "registry"}}},
}

// cases are the values that each test renders: the chart's own, all, and those that the page shows.
func cases(t *testing.T) []values {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/how-to/run-in-kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```yaml\n")
	block, _, isThere := strings.Cut(after, "```\n")
	var shown values
	if err := yaml.UnmarshalStrict([]byte(block), &shown); err != nil || !isThere || len(shown) == 0 {
		t.Fatalf("values of docs/how-to/run-in-kubernetes.md: %v, %v; expected a yaml block", shown, err)
	}
	return []values{nil, everything, shown}
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	loaded, err := loader.Load(chartPath)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// render gives the documents, or why the values are refused.
func render(c *chart.Chart, with values) (documents []string, err error) {
	options := chartutil.ReleaseOptions{Name: "farlog", Namespace: "logs", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, with, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, one := range strings.Split(files[name], "\n---\n") {
			if strings.TrimSpace(one) != "" {
				documents = append(documents, one)
			}
		}
	}
	return documents, nil
}

// rendered are the objects of a chart whose values are good.
func rendered(t *testing.T, c *chart.Chart, with values) ([]apps.StatefulSet, []core.Service) {
	t.Helper()
	documents, err := render(c, with)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, documents)
}

// objects are what Kubernetes reads of the documents: a field that it does not know is an error.
func objects(t *testing.T, documents []string) (sets []apps.StatefulSet, services []core.Service) {
	t.Helper()
	for _, one := range documents {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(one), &kind); err != nil {
			t.Fatalf("%v\n%s", err, one)
		}
		var err error
		switch kind.Kind {
		case "StatefulSet":
			sets = append(sets, apps.StatefulSet{})
			err = yaml.UnmarshalStrict([]byte(one), &sets[len(sets)-1])
		case "Service":
			services = append(services, core.Service{})
			err = yaml.UnmarshalStrict([]byte(one), &services[len(services)-1])
		default:
			t.Fatalf("kind %q: not known to this test\n%s", kind.Kind, one)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, one)
		}
	}
	return sets, services
}

func TestChart_Lints(t *testing.T) {
	if about := load(t).Metadata; about.AppVersion != about.Version {
		t.Errorf("appVersion %s, version %s: expected the same", about.AppVersion, about.Version)
	}
	for _, with := range cases(t) {
		for _, message := range lint.AllWithKubeVersion(chartPath, with, "logs", nil).Messages {
			if message.Severity > support.InfoSev {
				t.Error(message)
			}
		}
	}
}

func TestChart_PodsMayLittle(t *testing.T) {
	for _, with := range cases(t) {
		sets, services := rendered(t, load(t), with)
		if len(sets) != 2 || len(services) != 3 {
			t.Fatalf("%d sets and %d services, expected 2 and 3", len(sets), len(services))
		}
		for _, set := range sets {
			var claims []string
			for _, claim := range set.Spec.VolumeClaimTemplates {
				claims = append(claims, claim.Name)
			}
			checkPod(t, set.Name, set.Spec.Template, claims)
			if set.Spec.Selector == nil || !isWithin(set.Spec.Selector.MatchLabels, set.Spec.Template.Labels) {
				t.Errorf("%s: its selector finds none of its pods", set.Name)
			}
			if !slices.ContainsFunc(services, func(s core.Service) bool {
				return s.Name == set.Spec.ServiceName && isWithin(s.Spec.Selector, set.Spec.Template.Labels)
			}) {
				t.Errorf("%s: no service %s with its pods", set.Name, set.Spec.ServiceName)
			}
		}
	}
}

func TestChart_DrainOfAnotherControlPlane(t *testing.T) {
	sets, services := rendered(t, load(t), values{"drain": values{"control": "logs-control:7070"}})
	if len(sets) != 1 || len(services) != 1 || sets[0].Name != "farlog-drain" {
		t.Fatalf("%d sets and %d services, expected the drain's alone", len(sets), len(services))
	}
	want := core.EnvVar{Name: "FARLOG_CONTROL", Value: "logs-control:7070"}
	if env := sets[0].Spec.Template.Spec.Containers[0].Env; !slices.Contains(env, want) {
		t.Errorf("%v; expected %v", env, want)
	}
}

func isWithin(some, all map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return len(some) > 0
}

func checkPod(t *testing.T, name string, pod core.PodTemplateSpec, claims []string) {
	t.Helper()
	security := pod.Spec.SecurityContext
	if security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot {
		t.Fatalf("%s: may run as root", name)
	}
	// Else kubelet lets the group write the directory of keys at each start, and the drain refuses it.
	if policy := security.FSGroupChangePolicy; policy == nil || *policy != core.FSGroupChangeOnRootMismatch {
		t.Errorf("%s: fsGroupChangePolicy: expected OnRootMismatch", name)
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
		t.Errorf("%s: has a token of the API that it does not need", name)
	}
	volumes := claims
	for _, volume := range pod.Spec.Volumes {
		volumes = append(volumes, volume.Name)
		if volume.Secret != nil && *volume.Secret.DefaultMode != 0o440 {
			t.Errorf("%s: mode %o of secret %s: farlogd refuses keys that all can read", name,
				*volume.Secret.DefaultMode, volume.Name)
		}
	}
	for _, container := range pod.Spec.Containers {
		context := container.SecurityContext
		if context == nil || !*context.ReadOnlyRootFilesystem || *context.AllowPrivilegeEscalation ||
			!slices.Equal(context.Capabilities.Drop, []core.Capability{"ALL"}) {
			t.Errorf("%s: container %s may more than it needs", name, container.Name)
		}
		for _, mount := range container.VolumeMounts {
			if !slices.Contains(volumes, mount.Name) {
				t.Errorf("%s: container %s mounts volume %s, which is not there", name, container.Name, mount.Name)
			}
		}
		if container.Name == "archive" && slices.ContainsFunc(container.VolumeMounts, isSecretOfDrain) {
			t.Errorf("%s: the archive sees the keys or the certificates of the drain", name)
		}
		checkSettings(t, container)
	}
}

func isSecretOfDrain(mount core.VolumeMount) bool {
	return mount.Name == "keys" || mount.Name == "tls"
}

// checkSettings finds variables that the program does not know: it would not say so.
func checkSettings(t *testing.T, container core.Container) {
	t.Helper()
	program := filepath.Base(container.Command[0])
	reference, err := os.ReadFile(root + "/docs/reference/" + program + ".md")
	if err != nil {
		t.Fatal(err)
	}
	known := section(string(reference), program) + section(string(reference), program+" "+container.Args[0])
	for _, variable := range container.Env {
		if strings.HasPrefix(variable.Name, "FARLOG_") && !strings.Contains(known, "("+variable.Name+")") {
			t.Errorf("container %s: %s: %s %s has no such setting", container.Name, variable.Name, program,
				container.Args[0])
		}
	}
}

// section is what the reference page has below the heading of a command.
func section(page, command string) string {
	_, after, _ := strings.Cut(page, "\n## "+command+"\n")
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

// What the chart sets and what its programs read is one thing: they are built of this tree, and check the settings.
func TestChart_ProgramsTakeSettings(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", bin+"/", "./cmd/farlogd", "./cmd/farlog-archive")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	for _, with := range cases(t) {
		sets, _ := rendered(t, load(t), with)
		for _, set := range sets {
			for _, container := range set.Spec.Template.Spec.Containers {
				checkByProgram(t, bin, container)
			}
		}
	}
}

func checkByProgram(t *testing.T, bin string, container core.Container) {
	t.Helper()
	command := exec.Command(filepath.Join(bin, filepath.Base(container.Command[0])),
		append(slices.Clone(container.Args), "--check")...)
	command.Env = []string{"PATH=/usr/bin"}
	for _, variable := range container.Env {
		command.Env = append(command.Env, variable.Name+"="+variable.Value)
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("container %s: %v\n%s", container.Name, err, out)
	}
}

func TestChart_RefusesValues(t *testing.T) {
	for want, with := range map[string]values{
		"keysize":       {"drain": values{"keysStorage": values{"keysize": "1Gi"}}},
		"FARLOG":        {"drain": values{"env": values{"PATH": "/"}}},
		"type":          {"control": values{"service": values{"type": "Balanced"}}},
		"etcdEndpoints": {"control": values{"replicas": 2}},
		"url":           {"archive": values{"enabled": true, "retain": "6y"}},
		"retain":        {"archive": values{"enabled": true, "url": "s3://worm"}},
		"hostname":      {"drain": values{"hostname": "central1"}},
		"size":          {"drain": values{"storage": values{"size": "much"}}},
	} {
		if _, err := render(load(t), with); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; expected that %s is refused", with, err, want)
		}
	}
}

// immutable are the fields that Kubernetes lets nobody change: a version that changes one cannot be upgraded to.
func immutable(t *testing.T, c *chart.Chart) string {
	t.Helper()
	sets, services := rendered(t, c, nil)
	fields := values{}
	for _, set := range sets {
		fields["StatefulSet "+set.Name] = values{
			"selector": set.Spec.Selector, "serviceName": set.Spec.ServiceName,
			"podManagementPolicy": set.Spec.PodManagementPolicy, "volumeClaimTemplates": set.Spec.VolumeClaimTemplates,
		}
	}
	for _, service := range services {
		fields["Service "+service.Name] = values{"clusterIP": service.Spec.ClusterIP}
	}
	written, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(written)
}

// What was released once can be upgraded to the present chart, and that to the next version.
func TestChart_ImmutableFieldsStay(t *testing.T) {
	now := immutable(t, load(t))
	next := load(t)
	next.Metadata.Version, next.Metadata.AppVersion = "99.0.0", "99.0.0"
	if got := immutable(t, next); got != now {
		t.Errorf("fields that nobody can change depend on the version:\n%s\nand\n%s", now, got)
	}
	if *update {
		writeReleased(t, load(t).Metadata.Version, now)
	}
	released, err := filepath.Glob("testdata/immutable-*.yaml")
	if err != nil || len(released) == 0 {
		t.Fatalf("released: %v, %v; expected that of 0.2.0 at least", released, err)
	}
	for _, path := range released {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(before) != now {
			t.Errorf("%s was released with\n%s\nnow it is\n%s", path, before, now)
		}
	}
}

// writeReleased keeps what a version has: it is never written again.
func writeReleased(t *testing.T, version, fields string) {
	t.Helper()
	path := filepath.Join("testdata", "immutable-"+version+".yaml")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(fields); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
