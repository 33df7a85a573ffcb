// Berth's rclone: the backends of the providers' buckets, and the commands that mount them.
// go.mod has its version, and go.sum the checksums of all its parts. The whole of rclone is three times as large.
package main

import (
	_ "github.com/rclone/rclone/backend/azureblob"
	_ "github.com/rclone/rclone/backend/googlecloudstorage"
	_ "github.com/rclone/rclone/backend/local"
	_ "github.com/rclone/rclone/backend/s3"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/copy"
	_ "github.com/rclone/rclone/cmd/lsd"
	_ "github.com/rclone/rclone/cmd/mount"
	_ "github.com/rclone/rclone/cmd/serve"
	_ "github.com/rclone/rclone/cmd/serve/docker"
	_ "github.com/rclone/rclone/cmd/version"
)

func main() { cmd.Main() }
