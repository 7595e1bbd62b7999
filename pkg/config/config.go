// Package config reads the settings of a program. One setting has one name in three spellings: `flush.timeout` in
// the YAML file, FARLOG_FLUSH_TIMEOUT in the environment, --flush-timeout on the command line. The command line wins
// over the environment, the environment over the file, the file over the default. Everything is validated before
// anything is opened, and all mistakes are reported at once: each is one line that names the setting, where it came
// from, its value and what was expected.
package config

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// environmentPrefix starts the environment spelling of every setting.
const environmentPrefix = "FARLOG_"

// Error is a setting that cannot be used, or several: a mistake of the user, not of the world.
type Error struct {
	Lines []string // one for each mistake
}

func (e *Error) Error() string { return strings.Join(e.Lines, "\n") }

func errorf(format string, args ...any) error {
	return &Error{Lines: []string{fmt.Sprintf(format, args...)}}
}

// Set is the settings of one program, each bound to a flag. Use: declare all of them, let pflag parse the command
// line, then call Load once.
type Set struct {
	flags    *pflag.FlagSet
	settings map[string]*setting // by dotted name
}

type setting struct {
	name  string // dotted
	flag  *pflag.Flag
	check func() error
	// Once it is loaded: where its value is from, and the value, as an error calls them.
	source   string
	isOfFile bool
}

// New makes an empty Set whose settings become flags of flags.
func New(flags *pflag.FlagSet) *Set {
	return &Set{flags: flags, settings: make(map[string]*setting)}
}

// String declares a text setting. checks run after every source has been read.
func (s *Set) String(target *string, name, value, usage string, checks ...func(string) error) {
	s.flags.StringVar(target, FlagName(name), value, usage)
	s.add(name, func() error { return runChecks(*target, checks) })
}

// Strings declares a comma separated list.
func (s *Set) Strings(target *[]string, name string, value []string, usage string, checks ...func([]string) error) {
	s.flags.StringSliceVar(target, FlagName(name), value, usage)
	s.add(name, func() error { return runChecks(*target, checks) })
}

// Bool declares a yes or no.
func (s *Set) Bool(target *bool, name string, value bool, usage string) {
	s.flags.BoolVar(target, FlagName(name), value, usage)
	s.add(name, func() error { return nil })
}

// Duration declares a length of time with its unit: 250us, 5s.
func (s *Set) Duration(target *time.Duration, name string, value time.Duration, usage string,
	checks ...func(time.Duration) error,
) {
	*target = value
	s.flags.Var((*DurationValue)(target), FlagName(name), usage)
	s.add(name, func() error { return runChecks(*target, checks) })
}

// Size declares a number of bytes: 64MiB, 4096.
func (s *Set) Size(target *uint64, name string, value uint64, usage string, checks ...func(uint64) error) {
	*target = value
	s.flags.Var((*SizeValue)(target), FlagName(name), usage)
	s.add(name, func() error { return runChecks(*target, checks) })
}

// Var declares a setting of any other kind, which checks itself.
func (s *Set) Var(target pflag.Value, name, usage string) {
	s.flags.Var(target, FlagName(name), usage)
	s.add(name, func() error { return nil })
}

// With gives the same Set for other flags, those of a subcommand: what is declared in one is of the other too, but for
// the flag.
func (s *Set) With(flags *pflag.FlagSet) *Set { return &Set{flags: flags, settings: s.settings} }

// Load reads the environment and the file (path "" = none) into the settings that the command line left alone, then
// validates all of them. An error is of type *Error and has every mistake: those of the file in its order, then the
// others. lookup is os.LookupEnv outside tests.
func (s *Set) Load(path string, lookup func(string) (string, bool)) error {
	file, mistakes, err := s.readFile(path)
	if err != nil {
		return err
	}
	var elsewhere []string
	for _, name := range s.names() {
		err := s.load(s.settings[name], path, file, lookup)
		one, isInFile := file[name]
		switch {
		case err == nil:
		case isInFile && s.settings[name].isOfFile:
			mistakes = append(mistakes, &Mistake{one.line, one.column, err.Error()})
		default:
			elsewhere = append(elsewhere, withoutPassword(err.Error()))
		}
	}
	if lines := append(inOrder(path, mistakes), elsewhere...); len(lines) > 0 {
		return &Error{Lines: lines}
	}
	return nil
}

// load gives one setting the value of its strongest source and checks it.
func (s *Set) load(one *setting, path string, file map[string]fileValue, lookup func(string) (string, bool)) error {
	name, err := s.resolve(one, file, lookup)
	one.source = name
	if one.isOfFile {
		one.source = path + ": " + name
	}
	if err == nil {
		err = one.check()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Given tells of settings, by their dotted names, where those are from that are not as they are by default: a flag, the
// environment or a file, each with its value. It is for errors about settings that do not go together, after Load.
func (s *Set) Given(names ...string) (sources []string) {
	for _, name := range names {
		if one := s.settings[name]; one.flag.Value.String() != one.flag.DefValue {
			sources = append(sources, withoutPassword(one.source))
		}
	}
	return sources
}

// userInfo is what stands before the host of a URL.
var userInfo = regexp.MustCompile(`://[^/@\s"]*@`)

// withoutPassword hides who is named in a URL, and by which password: a refusal is for a log.
func withoutPassword(text string) string { return userInfo.ReplaceAllString(text, "://***@") }

// FlagName is the command line spelling of a dotted name, without the dashes.
func FlagName(name string) string { return strings.ReplaceAll(name, ".", "-") }

// EnvironmentName is the environment spelling of a dotted name.
func EnvironmentName(name string) string {
	return environmentPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}

func (s *Set) add(name string, check func() error) {
	flag := s.flags.Lookup(FlagName(name))
	flag.Usage += " (" + EnvironmentName(name) + ")"
	s.settings[name] = &setting{name: name, flag: flag, check: check}
}

func (s *Set) names() []string {
	names := make([]string, 0, len(s.settings))
	for name := range s.settings {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// resolve takes the value of one setting from the strongest source. It returns what an error calls the setting, with
// its value.
func (s *Set) resolve(one *setting, file map[string]fileValue, lookup func(string) (string, bool)) (string, error) {
	if !one.flag.Changed {
		if value, ok := lookup(EnvironmentName(one.name)); ok {
			return assign(one, EnvironmentName(one.name), value)
		}
		if value, ok := file[one.name]; ok {
			one.isOfFile = true
			return assign(one, one.name, value.text)
		}
	}
	return fmt.Sprintf("--%s %q", one.flag.Name, asGiven(one.flag.Value)), nil
}

// asGiven is a value as it stands on a command line: a list without the brackets that Go prints around it.
func asGiven(value pflag.Value) string {
	if list, ok := value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return value.String()
}

func assign(one *setting, name, value string) (string, error) {
	name = fmt.Sprintf("%s %q", name, value)
	err := one.flag.Value.Set(value)
	if err != nil && one.flag.Value.Type() == "bool" {
		err = errors.New("expected true or false")
	}
	return name, err
}

func runChecks[T any](value T, checks []func(T) error) error {
	for _, check := range checks {
		if err := check(value); err != nil {
			return err
		}
	}
	return nil
}
