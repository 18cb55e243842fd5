package config

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// maxFile bounds a config and a secret.
const maxFile = 1 << 20

// sum tells contents apart; zero is a file that can't be read.
type sum [sha256.Size]byte

// read reads a file and remembers what it was, unless it is a pipe or the like, which gives its text once. The text is
// nil only with an error.
func (l *loader) read(name string) ([]byte, error) {
	text, err := readBounded(name)
	if info, errStat := os.Stat(name); errStat != nil || info.Mode().IsRegular() {
		l.files[name] = sumOf(text, err)
	}
	return text, err
}

func sumOf(text []byte, err error) sum {
	if err != nil {
		return sum{}
	}
	return sha256.Sum256(text)
}

func readBounded(name string) ([]byte, error) {
	// a pipe that nobody writes to is empty, not waited for
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("%s is larger than 1MiB", name)
	}
	return text, nil
}

func (l *loader) readSecrets(c *Config) {
	l.readDSN(&c.Postgres)
	l.readFile("kafka.sasl.password", &c.Kafka.SASL.Password, c.Kafka.SASL.PasswordFile)
	l.readFile("http.read_token", &c.HTTP.ReadToken, c.HTTP.ReadTokenFile)
	l.readFile("http.write_token", &c.HTTP.WriteToken, c.HTTP.WriteTokenFile)
	for i, t := range c.Topics {
		for j := range t.Handlers {
			w := &t.Handlers[j].Webhook
			l.readFile(fmt.Sprintf("topics[%d].handlers[%d].webhook.secret", i, j), &w.Secret, w.SecretFile)
		}
	}
}

func (l *loader) readDSN(p *Postgres) {
	l.readFile("postgres.dsn", &p.DSN, p.DSNFile)
	p.DSN = Secret(strings.TrimSpace(p.DSN.Reveal()))
}

// readFile sets a secret to what its file holds. The file's name, key_file, is beside the key.
func (l *loader) readFile(key string, into *Secret, name string) {
	switch {
	case name == "":
		return
	case *into != "":
		l.fault(key+"_file", "is given beside %s; keep one of the two", l.named(key))
		return
	}
	text, err := l.read(name)
	if err != nil {
		l.fault(key+"_file", "%v", err)
		return
	}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		l.fault(key+"_file", "the file %s is UTF-16; write it as UTF-8", name)
		return
	}
	const byteOrderMark = "\ufeff" // of an editor; never of a secret
	*into = Secret(strings.TrimRight(strings.TrimPrefix(string(text), byteOrderMark), "\r\n"))
	if *into == "" {
		l.fault(key+"_file", "the file %s is empty", name)
	}
}
