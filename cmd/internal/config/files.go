package config

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
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
	l.readFile("kafka.sasl.oauth.client_secret", &c.Kafka.SASL.OAuth.ClientSecret, c.Kafka.SASL.OAuth.ClientSecretFile)
	l.readFile("registry.password", &c.Registry.Password, c.Registry.PasswordFile)
	l.readFile("registry.token", &c.Registry.Token, c.Registry.TokenFile)
	l.readFile("http.read_token", &c.HTTP.ReadToken, c.HTTP.ReadTokenFile)
	l.readFile("http.write_token", &c.HTTP.WriteToken, c.HTTP.WriteTokenFile)
	l.readTokens(&c.Ingress)
	for i := range c.Outbox.Destinations {
		w := &c.Outbox.Destinations[i].Webhook
		l.readFile(fmt.Sprintf("outbox.destinations[%d].webhook.secret", i), &w.Secret, w.SecretFile)
	}
	for i, t := range c.Topics {
		for j := range t.Handlers {
			w := &t.Handlers[j].Webhook
			l.readFile(fmt.Sprintf("topics[%d].handlers[%d].webhook.secret", i, j), &w.Secret, w.SecretFile)
		}
	}
}

// readTokens adds the tokens that are in files to those that are not.
func (l *loader) readTokens(in *Ingress) {
	for _, name := range slices.Sorted(maps.Keys(in.TokenFiles)) {
		path := "ingress.token_files[" + name + "]"
		if _, twice := in.Tokens[name]; twice {
			l.fault(path, "is given beside a token of the same name in %s; keep one of the two", l.named("ingress.tokens"))
			continue
		}
		if in.Tokens == nil {
			in.Tokens = map[string]Secret{}
		}
		in.Tokens[name] = l.readSecret(path, in.TokenFiles[name])
	}
}

func (l *loader) readDSN(p *Postgres) {
	if len(p.Shards) > 0 {
		l.readShard(p)
		return
	}
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
	*into = l.readSecret(key+"_file", name)
}

// readSecret reads a file. Faults are of the key that names it.
func (l *loader) readSecret(key, name string) Secret {
	text, err := l.read(name)
	if err != nil {
		l.fault(key, "%v", err)
		return ""
	}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		l.fault(key, "the file %s is UTF-16; write it as UTF-8", name)
		return ""
	}
	const byteOrderMark = "\ufeff" // of an editor; never of a secret
	secret := Secret(strings.TrimRight(strings.TrimPrefix(string(text), byteOrderMark), "\r\n"))
	if secret == "" {
		l.fault(key, "the file %s is empty", name)
	}
	return secret
}
