package target

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// wantedName is the file with the control plane's last word. A target that is started again without a control plane serves by it: its
// grants let the same writers and drains in, and a fence is only ever raised. It holds tokens.
const wantedName = "wanted.json"

func (t *Target) remember(message *api.WatchRingsResponse) error {
	raw, err := protojson.Marshal(message)
	if err != nil {
		return err
	}
	path := filepath.Join(t.config.Dir, wantedName)
	part := path + ".part"
	if err := errors.Join(os.WriteFile(part, raw, 0o600), os.Chmod(part, 0o600)); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// recall gives nothing where there is no file.
func (t *Target) recall() ([]*api.RingSpec, error) {
	path := filepath.Join(t.config.Dir, wantedName)
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	message := new(api.WatchRingsResponse)
	if err := protojson.Unmarshal(raw, message); err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	return message.Rings, nil
}
