package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/identity"
)

// caOptions are the flags of the commands of the authority.
type caOptions struct {
	trustDomain string
	hosts       []string
	validity    time.Duration
	out         string
}

func newCACommand(env *environment) *cobra.Command {
	return newGroup("ca", "Make and revoke the certificates by which farlog's daemons and commands identify each other",
		newCAInitCommand(env), newCAIssueCommand(env), newCARenewCommand(env), newCARevokeCommand(env),
		newCAShowCommand(env))
}

func (o *caOptions) declareOrder(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&o.hosts, "host", nil,
		"`names` and addresses in the certificate, for programs that check them, such as Prometheus and curl; farlog "+
			"itself checks the id")
	o.declareValidity(cmd)
}

func (o *caOptions) declareValidity(cmd *cobra.Command) {
	o.validity = identity.ValidityDefault
	cmd.Flags().Var((*config.DurationValue)(&o.validity), "validity", "how long a certificate is valid")
}

// check finds orders that make no certificate.
func (o *caOptions) check() error {
	if o.validity <= 0 {
		return usageErrorf("--validity %s: expected more than nothing, such as 720h", o.validity)
	}
	return nil
}

func newCAInitCommand(env *environment) *cobra.Command {
	options := caOptions{}
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make an authority, and a certificate of each kind that is valid on any host",
		Long: `Makes an authority in DIR (ca.crt, ca.key, crl.pem), and beside it a certificate and key each for
control, target, drain, host and admin. These are valid on any host. Copy ca.crt, crl.pem and the certificate and key
of a host's role to its ` + identity.SystemDir + `, or give --tls-dir. farlog ca issue makes certificates for one
host. Who has ca.key can sign any certificate: keep it where the authority is.`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return caInit(env, args[0], options) },
	}
	cmd.Flags().StringVar(&options.trustDomain, "trust-domain", identity.TrustDomainDefault,
		"`name` in the ids: spiffe://NAME/farlog/KIND/HOST")
	options.declareOrder(cmd)
	return cmd
}

func caInit(env *environment, dir string, options caOptions) error {
	if err := options.check(); err != nil {
		return err
	}
	authority, err := identity.InitAuthority(dir, options.trustDomain, time.Now())
	if err != nil {
		return err
	}
	var made []*x509.Certificate
	for _, kind := range identity.Kinds {
		cert, err := authority.Issue(dir, identity.Order{
			Kind: kind, Name: identity.NameAny, Hosts: options.hosts,
			Validity: options.validity,
		}, time.Now())
		if err != nil {
			return err
		}
		made = append(made, cert)
	}
	return printCerts(env, made)
}

func newCAIssueCommand(env *environment) *cobra.Command {
	options := caOptions{}
	cmd := &cobra.Command{
		Use:   "issue DIR KIND NAME",
		Short: "Make a certificate for one host: control, target, drain, host or admin",
		Long: `Signs a certificate with the authority in DIR. A target's or drain's certificate is valid only for
daemons with that host name (--host-name). The command writes all that the host needs to one directory: copy it to
` + identity.SystemDir + ` there.`,
		Args: exactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error { return caIssue(env, args[0], args[1], args[2], options) },
	}
	cmd.Flags().StringVar(&options.out, "out", "", "`directory` to write to (default: DIR/KIND-NAME)")
	options.declareOrder(cmd)
	return cmd
}

func caIssue(env *environment, dir, kind, name string, options caOptions) error {
	if !slices.Contains(identity.Kinds, identity.Kind(kind)) {
		return usageErrorf("kind %q: expected one of %v", kind, identity.Kinds)
	}
	if err := identity.CheckName("name", name); err != nil {
		return usageErrorf("%s", err)
	}
	if err := options.check(); err != nil {
		return err
	}
	authority, err := identity.OpenAuthority(dir)
	if err != nil {
		return err
	}
	if options.out == "" {
		options.out = filepath.Join(dir, kind+"-"+name)
	}
	order := identity.Order{Kind: identity.Kind(kind), Name: name, Hosts: options.hosts, Validity: options.validity}
	cert, err := authority.Issue(options.out, order, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintf(env.stderr, "wrote %s\n", options.out)
	return printCerts(env, []*x509.Certificate{cert})
}

func newCARenewCommand(env *environment) *cobra.Command {
	options := caOptions{}
	cmd := &cobra.Command{
		Use:   "renew DIR [CERTS-DIR]",
		Short: "Renew every certificate in a directory, with its present contents",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageErrorf("got %d arguments, expected: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := options.check(); err != nil {
				return err
			}
			authority, err := identity.OpenAuthority(args[0])
			if err != nil {
				return err
			}
			made, err := authority.Renew(args[len(args)-1], options.validity, time.Time{}, time.Now())
			if err != nil {
				return err
			}
			if len(made) == 0 {
				return fmt.Errorf("no certificate of the authority in %s is in %s", args[0], args[len(args)-1])
			}
			return printCerts(env, made)
		},
	}
	options.declareValidity(cmd)
	return cmd
}

func newCARevokeCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke DIR CERTIFICATE...",
		Short: "Add certificates to the list of revoked ones",
		Long: `Adds certificates to DIR/crl.pem. A control plane that reads this list disconnects their holders
within two seconds; copy it to the others, which reload it when it changes.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageErrorf("got %d arguments, expected: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			authority, err := identity.OpenAuthority(args[0])
			if err != nil {
				return err
			}
			revoked, err := authority.Revoke(args[1:], time.Now())
			if err != nil {
				return err
			}
			return printRevoked(env, args[0], revoked)
		},
	}
}

func newCAShowCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "show DIR",
		Short: "List the certificates in a directory: who, until when, revoked or not",
		Long: `Lists the certificates in DIR. If DIR is the directory of an authority, it also lists those that farlog
ca issue wrote below it. The revocation list in DIR says which are revoked; a copy on a host may be older.`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return err
			}
			list, err := identity.ListIssued(args[0])
			if err != nil {
				return err
			}
			return printListed(env, list)
		},
	}
}

func printRevoked(env *environment, dir string, certs []*x509.Certificate) error {
	list := make([]identity.Listed, len(certs))
	for i, cert := range certs {
		list[i] = identity.NewListed(cert)
		list[i].Revoked = true
	}
	fmt.Fprintf(env.stderr, "copy %s to the control planes\n", filepath.Join(dir, "crl.pem"))
	return printListed(env, list)
}

// printCerts shows certificates that were just made.
func printCerts(env *environment, certs []*x509.Certificate) error {
	list := make([]identity.Listed, len(certs))
	for i, cert := range certs {
		list[i] = identity.NewListed(cert)
	}
	return printListed(env, list)
}

func printListed(env *environment, list []identity.Listed) error {
	if env.isJSON() {
		return env.writeJSON(list)
	}
	table := env.newTable()
	fmt.Fprintln(table, "ID\tEXPIRES\tSTATE")
	for _, one := range list {
		expires := "-"
		if !one.Expires.IsZero() {
			expires = one.Expires.Format(time.RFC3339)
		}
		tableRow(table, "%s\t%s\t%s\n", one.ID, expires, one.State(time.Now()))
	}
	return table.Flush()
}
