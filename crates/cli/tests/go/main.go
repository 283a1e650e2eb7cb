// Two NBD modules of the Go registry against a served array: `client SOCKET EXPORT`. It ends with 0 if all was as it must be.
//
// Merovius/nbd negotiates; what follows is written with the messages of pojntfx/go-nbd, whose own client wants a device of the
// kernel. That module sends no client flags and then options, which is done here as well.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/Merovius/nbd"
	"github.com/pojntfx/go-nbd/pkg/protocol"
)

const (
	// Neither begins nor ends at a sector.
	offset = 3*512 + 1
	length = 96<<10 + 7
	flush  = uint16(3)
)

func must(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func dial() net.Conn {
	conn, err := net.Dial("unix", os.Args[1])
	must(err, "dial")
	return conn
}

// negotiate lists exports, asks for one, and is in the transmission phase with it.
func negotiate(name string) (net.Conn, nbd.Export) {
	conn := dial()
	client, err := nbd.ClientHandshake(context.Background(), conn)
	must(err, "handshake")
	names, err := client.List()
	must(err, "list")
	if len(names) != 1 || names[0] != name {
		must(fmt.Errorf("%q", names), "other exports")
	}
	info, err := client.Info(name)
	must(err, "info")
	export, err := client.Go(name)
	must(err, "go")
	if info.Size != export.Size || info.Flags != export.Flags || *info.BlockSizes != *export.BlockSizes {
		must(fmt.Errorf("%v and %v", info, export), "INFO and GO differ")
	}
	// The module cuts its negotiation short by a deadline, and leaves that behind.
	must(conn.SetDeadline(time.Time{}), "deadline")
	return conn, export
}

// call makes one request, and returns what it read.
func call(conn net.Conn, kind uint16, handle uint64, payload []byte, reads int) []byte {
	size := uint32(len(payload) + reads)
	header := protocol.TransmissionRequestHeader{
		RequestMagic: protocol.TRANSMISSION_MAGIC_REQUEST,
		Type:         kind,
		Handle:       handle,
		Length:       size,
	}
	if size > 0 {
		header.Offset = offset
	}
	must(binary.Write(conn, binary.BigEndian, header), "request")
	_, err := conn.Write(payload)
	must(err, "payload")
	var reply protocol.TransmissionReplyHeader
	must(binary.Read(conn, binary.BigEndian, &reply), "reply")
	if reply != (protocol.TransmissionReplyHeader{ReplyMagic: protocol.TRANSMISSION_MAGIC_REPLY, Handle: handle}) {
		must(fmt.Errorf("%+v", reply), "not what was asked")
	}
	read := make([]byte, reads)
	_, err = io.ReadFull(conn, read)
	must(err, "what was read")
	return read
}

// listWithoutFlags sends what pojntfx/go-nbd sends.
func listWithoutFlags(name string) {
	conn := dial()
	var hello protocol.NegotiationNewstyleHeader
	must(binary.Read(conn, binary.BigEndian, &hello), "hello")
	must(binary.Write(conn, binary.BigEndian, uint32(0)), "flags")
	option := protocol.NegotiationOptionHeader{
		OptionMagic: protocol.NEGOTIATION_MAGIC_OPTION,
		ID:          protocol.NEGOTIATION_ID_OPTION_LIST,
	}
	must(binary.Write(conn, binary.BigEndian, option), "list")
	var reply protocol.NegotiationReplyHeader
	must(binary.Read(conn, binary.BigEndian, &reply), "reply")
	data := make([]byte, reply.Length)
	_, err := io.ReadFull(conn, data)
	must(err, "reply's data")
	begins := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
	if reply.Type != protocol.NEGOTIATION_TYPE_REPLY_SERVER || !bytes.HasPrefix(data, append(begins, name...)) {
		must(fmt.Errorf("%+v %q", reply, data), "no list without flags")
	}
	must(conn.Close(), "close")
}

func main() {
	name := os.Args[2]
	conn, export := negotiate(name)
	written := make([]byte, length)
	for at := range written {
		written[at] = byte(at * 7 / 3)
	}
	call(conn, protocol.TRANSMISSION_TYPE_REQUEST_WRITE, 1, written, 0)
	call(conn, flush, 2, nil, 0)
	if !bytes.Equal(call(conn, protocol.TRANSMISSION_TYPE_REQUEST_READ, 3, nil, length), written) {
		must(fmt.Errorf("other bytes"), "read")
	}
	listWithoutFlags(name)
	fmt.Println(export.Size, export.BlockSizes.Min, export.BlockSizes.Preferred, export.BlockSizes.Max)
}
