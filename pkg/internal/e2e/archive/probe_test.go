package archive_test

import (
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/s3test"
)

// TestProbe_ExitCodes: 0 when the lock is proved, 3 when its credentials cannot prove it.
func TestProbe_ExitCodes(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t, true)
	limited, err := server.Limited(t, bucket, "s3:ListBucketVersions", "s3:GetBucketVersioning",
		"s3:GetBucketObjectLockConfiguration", "s3:GetObject", "s3:GetObjectVersion", "s3:PutObject",
		"s3:PutObjectRetention", "s3:GetObjectRetention").GetWithContext(nil)
	if err != nil {
		t.Fatal(err)
	}
	for keys, expected := range map[[2]string]int{
		{s3test.AccessKey, s3test.SecretKey}:           0,
		{limited.AccessKeyID, limited.SecretAccessKey}: 3,
	} {
		cmd, talk := program("probe", "--archive-url", "s3://"+bucket+"/desk7", "--archive-endpoint", server.Endpoint,
			"--archive-region", s3test.Region)
		cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID="+keys[0], "AWS_SECRET_ACCESS_KEY="+keys[1])
		_ = cmd.Run() // its exit code says it
		if code := cmd.ProcessState.ExitCode(); code != expected ||
			strings.Contains(talk.String(), "not proved") != (expected == 3) {
			t.Errorf("%s: exit code %d, expected %d: %s", keys[0], code, expected, talk)
		}
	}
}
