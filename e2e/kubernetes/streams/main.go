// Command streams is the program of a Pod for tests of exec and port-forward, from an image without a shell.
//
//	streams           echoes what connections to port 7000 send
//	streams fail      prints "out" and, on standard error, "err", and ends with 3
//	streams stay      prints "begun", and stays
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	switch arguments := os.Args[1:]; {
	case len(arguments) == 0:
		if err := echo(); err != nil {
			fmt.Fprintln(os.Stderr, "streams:", err)
			os.Exit(1)
		}
	case arguments[0] == "fail":
		fmt.Println("out")
		fmt.Fprintln(os.Stderr, "err")
		os.Exit(3)
	case arguments[0] == "stay":
		fmt.Println("begun")
		time.Sleep(time.Hour)
	default:
		fmt.Fprintln(os.Stderr, "streams: unknown arguments:", arguments)
		os.Exit(2)
	}
}

func echo() error {
	listener, err := net.Listen("tcp", ":7000")
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			_, _ = io.Copy(connection, connection)
		}()
	}
}
