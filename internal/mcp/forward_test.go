package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/strangers"
)

// TestForwardTellsNobodyWhy checks that a client learns only that no gateway answers, before it shows a token, and that
// the operator of the listener learns the reason.
func TestForwardTellsNobodyWhy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var log bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- Forward(ctx, l, func(context.Context, string) (io.ReadWriteCloser, error) {
			return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "the ledger /home/ada/.bailey/ledger is full", Hint: "make room"}
		}, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	r, err := http.Get("http://" + l.Addr().String() + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil || r.StatusCode != 503 || strings.Contains(string(body), "ada") || !strings.Contains(string(body), "no gateway answers") {
		t.Errorf("%d %s %v", r.StatusCode, body, err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "/home/ada/.bailey/ledger is full") || !strings.Contains(log.String(), "make room") {
		t.Errorf("the log: %s", log.String())
	}
}

// TestForwardEnds checks that Forward ends with its context, even if connections are open.
func TestForwardEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	dialled := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Forward(ctx, l, func(context.Context, string) (io.ReadWriteCloser, error) {
			dialled <- struct{}{}
			near, _ := net.Pipe() // the far end does not write and does not read
			return near, nil
		}, slog.New(slog.DiscardHandler))
	}()
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	speaks, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer speaks.Close()
	io.WriteString(speaks, "GET / HTTP/1.1\r\n")
	<-dialled
	end()
	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
}

// TestAttackSilentConnections checks that connections that send no byte do not keep others waiting, even if they are
// more than maxFront.
func TestAttackSilentConnections(t *testing.T) {
	ktest.Long(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limits := strangers.Usual
	limits.Grace = 0
	crowd := strangers.New(limits)
	ctx, end := context.WithCancel(t.Context())
	sources := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Forward(ctx, crowd.Listener(l, nil), func(_ context.Context, source string) (io.ReadWriteCloser, error) {
			sources <- source
			return nil, errors.New("none")
		}, slog.New(slog.DiscardHandler))
	}()
	for range maxFront + 1 {
		silent, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	begin := time.Now()
	r, err := http.Get("http://" + l.Addr().String() + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if took := time.Since(begin); r.StatusCode != 503 || took > firstPatience/2 {
		t.Errorf("%d after %v", r.StatusCode, took)
	}
	if from := <-sources; from != "127.0.0.1" {
		t.Errorf("the gateway is told that it comes from %q", from)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
