package doctor

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/cmd/internal/config"
)

var configChecks = []Check{
	{
		Name: "config.loads", About: "the config has no fault", run: configLoads,
		Do: map[Level]string{Fault: "Correct the key; `firstseen run --check` lists all faults and connects nowhere."},
	},
	{
		Name: "config.secret_files", About: "files with secrets are not readable by others", needs: needsConfig,
		run: secretFiles,
		Do: map[Level]string{Warning: "Take the right to read from others: chmod o-rwx FILE; " +
			"in Kubernetes set defaultMode: 0440 and fsGroup."},
	},
	{
		Name: "config.http", About: "the HTTP server gives nothing away on the network",
		needs: needsConfig, run: httpListens,
		Do: map[Level]string{
			Warning: "Set http.cert_file and http.key_file, or listen on a loopback " +
				"address behind a proxy that speaks TLS.",
			Info: "Keep the port to those who scrape and probe; for the API from other hosts set a token and TLS.",
		},
	},
	{
		Name: "config.kafka_tls", About: "the way to the brokers is encrypted and the brokers are who they say",
		needs: needsConfig, run: kafkaTLS,
		Do: map[Level]string{Warning: "Set kafka.tls.enabled, and kafka.tls.ca_file where the brokers' " +
			"certificates are signed by a CA of your own."},
	},
	{
		Name: "config.sasl", About: "no password crosses the network as it is", needs: needsConfig, run: plainPassword,
		Do: map[Level]string{Warning: "Set kafka.tls.enabled, or use scram-sha-256 or scram-sha-512. " +
			"Change the password: it may have been read."},
	},
	{
		Name: "config.postgres_tls", About: "the way to Postgres is encrypted and the server is who it says",
		run: postgresTLS,
		Do: map[Level]string{
			Warning: "Write sslmode=verify-full in the connection string, with sslrootcert where the CA is your own.",
			Info: "Write sslmode=verify-full in the connection string: " +
				"with require anyone who answers is taken for the server.",
		},
	},
	{
		Name: "config.webhooks", About: "webhooks are called by https", needs: needsConfig, run: webhooksEncrypted,
		Do: map[Level]string{Warning: "Give the webhook an https URL."},
	},
}

func configLoads(_ context.Context, p *target, r *report) error {
	var wrong *config.Error
	switch {
	case errors.As(p.ConfigErr, &wrong):
		for _, f := range wrong.Faults {
			r.fault("%s", f)
		}
	case p.ConfigErr != nil:
		r.fault("%v", p.ConfigErr)
	case p.Config == nil:
		return errors.New("no config is given")
	default:
		r.ok("%s", p.Config.Summary())
	}
	return nil
}

func secretFilesOf(c *config.Config, file string) []string {
	names := []string{c.Postgres.DSNFile, c.Kafka.SASL.PasswordFile, c.Kafka.TLS.KeyFile,
		c.Kafka.SASL.OAuth.TokenFile, c.Kafka.SASL.OAuth.ClientSecretFile,
		c.Registry.PasswordFile, c.Registry.TokenFile, c.Registry.TLS.KeyFile,
		c.HTTP.KeyFile, c.HTTP.ReadTokenFile, c.HTTP.WriteTokenFile}
	names = slices.AppendSeq(names, maps.Values(c.Postgres.ShardDSNFiles))
	for _, t := range c.Topics {
		for _, h := range t.Handlers {
			names = append(names, h.Webhook.SecretFile)
		}
	}
	if text, err := os.ReadFile(file); err == nil && holdsSecret(string(text)) {
		names = append(names, file)
	}
	return names
}

// holdsSecret says whether a config's text may have a secret in it: a key for one whose value is not ${NAME}.
func holdsSecret(text string) bool {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, " #")
		for _, key := range []string{"password:", "secret:", "token:"} {
			_, value, found := strings.Cut(line, key)
			if value = strings.Trim(value, " \"'\n,}"); found && value != "" && !strings.HasPrefix(value, "${") {
				return true
			}
		}
		if _, dsn, found := strings.Cut(line, "dsn:"); found && dsnHasPassword(strings.Trim(dsn, " \"'\n}")) {
			return true
		}
	}
	return false
}

func dsnHasPassword(dsn string) bool {
	conf, err := pgxpool.ParseConfig(dsn)
	return err == nil && !strings.Contains(conf.ConnConfig.Password, "${") &&
		strings.Contains(dsn, conf.ConnConfig.Password) &&
		conf.ConnConfig.Password != ""
}

func secretFiles(_ context.Context, p *target, r *report) error {
	looked := map[string]bool{"": true}
	for _, name := range secretFilesOf(p.Config, p.ConfigFile) {
		if looked[name] {
			continue
		}
		looked[name] = true
		info, err := os.Stat(name)
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist): // a missing one is the config's fault
			r.notChecked(err)
		case err == nil && info.Mode().Perm()&0o004 != 0:
			r.warn("%s has mode %#o: every user of this machine can read it", name, info.Mode().Perm())
		}
	}
	r.ok("files looked at: %d", len(looked)-1)
	return nil
}

func httpListens(_ context.Context, p *target, r *report) error {
	h := p.Config.HTTP
	token := h.ReadToken != "" || h.WriteToken != "" || h.ReadTokenFile != "" || h.WriteTokenFile != ""
	switch {
	case h.Listen == "":
		r.ok("there is no HTTP server")
	case isLocal(h.Listen) || h.CertFile != "":
		r.ok("http.listen is %s", h.Listen)
	case token:
		r.warn("http.listen is %s without TLS: the token crosses the network as it is", h.Listen)
	default:
		r.info("http.listen is %s without TLS or token: probes and metrics are open to all who reach it", h.Listen)
	}
	return nil
}

// isLocal says of host:port, or a socket's path, that it is on this host only.
func isLocal(address string) bool {
	if strings.HasPrefix(address, "/") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// remoteBroker is a broker on another host; empty where there is none.
func remoteBroker(c *config.Config) string {
	for _, b := range c.Kafka.Brokers {
		if !isLocal(b) {
			return b
		}
	}
	return ""
}

func kafkaTLS(_ context.Context, p *target, r *report) error {
	tls, remote := p.Config.Kafka.TLS, remoteBroker(p.Config)
	switch {
	case tls.InsecureSkipVerify:
		r.warn("kafka.tls.insecure_skip_verify is on: anyone who answers is taken for a broker")
	case !tls.Enabled && remote != "":
		r.warn("TLS is off and %s is another host: messages cross the network as they are", remote)
	default:
		r.ok("TLS is on, or the brokers are on this host")
	}
	return nil
}

func plainPassword(_ context.Context, p *target, r *report) error {
	k, remote := p.Config.Kafka, remoteBroker(p.Config)
	if what := k.LoginInClear(); what != "" && remote != "" {
		r.warn("kafka.sasl.mechanism is %s without TLS: %s crosses the network to %s as it is", k.SASL.Mechanism, what,
			remote)
	}
	r.ok("kafka.sasl.mechanism is %q", k.SASL.Mechanism)
	return nil
}

func postgresTLS(_ context.Context, p *target, r *report) error {
	if p.DSN == "" {
		return errors.New("no database is given")
	}
	conf, err := pgxpool.ParseConfig(p.DSN)
	if err != nil {
		return errors.New("the connection string can't be read")
	}
	c := conf.ConnConfig
	plain, unverified := c.TLSConfig == nil, c.TLSConfig != nil && c.TLSConfig.InsecureSkipVerify &&
		c.TLSConfig.VerifyPeerCertificate == nil
	for _, f := range c.Fallbacks {
		plain = plain || f.TLSConfig == nil
	}
	switch {
	case isLocal(c.Host):
		r.ok("%s is on this host", c.Host)
	case plain:
		r.warn("the connection to %s may be unencrypted: messages, and what handlers write, "+
			"cross the network as they are", c.Host)
	case unverified:
		r.info("the connection to %s is encrypted, and the server's certificate is not verified", c.Host)
	default:
		r.ok("the connection to %s is encrypted and verified", c.Host)
	}
	return nil
}

func webhooksEncrypted(_ context.Context, p *target, r *report) error {
	for _, name := range p.Config.Unencrypted() {
		r.warn("the webhook %s is called by http: messages cross the network as they are", name)
	}
	r.ok("no webhook is called by http")
	return nil
}
