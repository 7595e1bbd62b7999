package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Credentials finds the credentials as the tools of AWS do: in the environment (AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), in a file (AWS_SHARED_CREDENTIALS_FILE, ~/.aws/credentials, AWS_PROFILE),
// or by the role of the instance, unless AWS_EC2_METADATA_DISABLED is true. They are never in a flag, which others see.
// Errors: ErrCredentials.
func Credentials() (*credentials.Credentials, error) {
	if os.Getenv("AWS_ACCESS_KEY_ID") != "" || os.Getenv("AWS_SECRET_ACCESS_KEY") != "" {
		if os.Getenv("AWS_ACCESS_KEY_ID") == "" || os.Getenv("AWS_SECRET_ACCESS_KEY") == "" {
			return nil, fmt.Errorf("%w: expected both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
				ErrCredentials)
		}
		return credentials.NewEnvAWS(), nil
	}
	file := os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	if home, err := os.UserHomeDir(); file == "" && err == nil {
		file = filepath.Join(home, ".aws", "credentials")
	}
	_, err := os.Stat(file)
	switch {
	case err == nil:
		return credentials.NewFileAWSCredentials(file, ""), nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: credentials file %s: %w", ErrCredentials, file, err)
	case os.Getenv("AWS_EC2_METADATA_DISABLED") == "true":
		return nil, fmt.Errorf("%w: none in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, no file %s, and "+
			"AWS_EC2_METADATA_DISABLED is true", ErrCredentials, file)
	}
	return credentials.NewIAM(""), nil
}
