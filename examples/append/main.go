// Command append appends one order and says where it is. Usage: append mem:/path/to/ring, which it makes, or
// farlog://stream
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/farlog/farlog/pkg/farlog"
)

func main() {
	uri := os.Args[1]
	if strings.HasPrefix(uri, "mem:") { // the ring of a stream is made by its target
		err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 16 << 20, StreamName: "desk7/orders"})
		if err != nil && !errors.Is(err, farlog.ErrExists) {
			log.Fatal(err)
		}
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Close()
	order := farlog.Entry{Data: []byte("35=D|11=ord-1|55=IBM|38=100"), Key: []byte("ord-1")}
	at, err := writer.Append(order, 0) // durable when err is nil; deadline: the default
	fmt.Printf("err=%v lsn=%d seq=%d level=%s\n", err, at.LSN, at.Seq, at.Level)
}
