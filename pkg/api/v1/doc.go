// Package apiv1 is the control plane's protocol: farlog.proto and the code made from it by generate.sh. It imports
// nothing else of farlog.
package apiv1

//go:generate ./generate.sh
