package testenv

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checkSecrets looks in everything that the daemons said for the secrets that they were given: the tokens of grants,
// and keys.
func (c *Cluster) checkSecrets() {
	tokens := c.tokens()
	if len(c.TargetArgs) > 0 && len(tokens) == 0 && !c.tb.Failed() {
		c.tb.Error("no token was given to the target or the drain of a cluster over a network: the look for them in " +
			"the logs proves nothing")
	}
	for _, process := range c.processes {
		said := process.Log()
		if strings.Contains(said, "PRIVATE KEY") {
			c.tb.Errorf("%s said a private key", process.Name)
		}
		for _, token := range tokens {
			for form, text := range forms(token) {
				if strings.Contains(said, text) {
					c.tb.Errorf("%s said a token, %s", process.Name, form)
				}
			}
		}
	}
}

// Watch has what another process of the cluster says, such as a host agent or a writer, looked through for secrets in
// the end.
func (c *Cluster) Watch(process *Process) { c.processes = append(c.processes, process) }

// forms are how a token could get into a log.
func forms(token []byte) map[string]string {
	return map[string]string{
		"in hexadecimal digits": hex.EncodeToString(token), "in base64": base64.StdEncoding.EncodeToString(token),
		"as bytes": string(token), "as numbers": strings.Trim(fmt.Sprint(token), "[]"),
		"quoted": strings.Trim(fmt.Sprintf("%q", token), `"`),
	}
}

// tokens are those in the files in which target and drain keep the control plane's last word.
func (c *Cluster) tokens() [][]byte {
	var found [][]byte
	for _, path := range []string{
		filepath.Join("target", "rings", "wanted.json"),
		filepath.Join("drain", "drain-assignments.json"),
	} {
		raw, err := os.ReadFile(filepath.Join(c.Dir, path))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			c.tb.Error(err)
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		for isToken := false; ; {
			word, err := decoder.Token()
			if err != nil {
				break
			}
			text, _ := word.(string)
			if isToken {
				token, err := base64.StdEncoding.DecodeString(text)
				if err != nil || len(token) == 0 {
					c.tb.Errorf("%s: token is not base64: %v", path, err)
				} else {
					found = append(found, token)
				}
			}
			isToken = !isToken && text == "token"
		}
	}
	return found
}
