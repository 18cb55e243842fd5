package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/firstseen/firstseen/cmd/internal/doctor"
	"github.com/firstseen/firstseen/consumer/page"
	"github.com/firstseen/firstseen/dedup/httpjson"
	"github.com/firstseen/firstseen/dedup/operate"
)

const uiLong = `Serve the operator's page on this machine: for a program that runs elsewhere and has an admin API but no page (http.page of
its config), or for an inbox whose program does not run or has no HTTP.

With --url it asks that program's API and nothing else; sign in with one of its tokens, which is kept here in memory. What is
changed stands in the program's audit, as for all clients of its API.

With --dsn, or a config, it reads Postgres itself: no process is asked, so that lag, partitions and rates are not known, and what
processes have told Postgres is. The address that is printed signs in once, whoever opens it first; an hour without use, or
Ctrl-C, ends that. What is changed stands in the audit as done by the login of this machine, or by --as. A job that is made here
is worked on by whichever ` + "`firstseen run`" + ` consumes into the inbox, now or later, and not by this command; the job's page says so
where none has taken it up. The role firstseen_operator is enough.

The page is for browsers on this machine only, as localhost or by the address that is printed.

Exit codes: 0 ended by a signal, 1 it failed, 2 wrong usage.`

// uiCommand is what the page is served for.
type uiCommand struct {
	inspected
	url, listen, as string
}

func newUI() *cobra.Command {
	u := &uiCommand{}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the operator's page here, for a program elsewhere or an inbox",
		Long:  uiLong,
		Example: `  firstseen ui --url https://consumer-1.example.com:8080
  firstseen ui --dsn postgres://operator@db/app --inbox billing
  firstseen ui --config firstseen.yaml --as ann`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return u.run(cmd) },
	}
	u.target.addFlags(cmd)
	cmd.Flags().StringVar(&u.inbox, "inbox", "",
		"`name` of the inbox (default: the config's inbox or group, or the only one there is)")
	cmd.Flags().StringVar(&u.url, "url", "", "base `URL` of the program's HTTP, where its http.listen is, instead of a database")
	cmd.Flags().StringVar(&u.as, "as", "", "`name` that stands in the audit, for a database (default: the login and the machine)")
	cmd.Flags().StringVar(&u.listen, "listen", "127.0.0.1:0", "`address` to listen at, on this machine; port 0 is any that is free")
	return cmd
}

func (u *uiCommand) run(cmd *cobra.Command) error {
	if !httpjson.ThisHost(u.listen) {
		return usage(cmd, "--listen: the page is for this machine; write 127.0.0.1:PORT, localhost:PORT or [::1]:PORT")
	}
	if u.url == "" {
		return u.serveInbox(cmd)
	}
	if u.dsn != "" || u.file != "" || u.inbox != "" || u.as != "" || u.schema != "" || u.shard != "" {
		return usage(cmd, "--url is for a program, and --dsn, --config, --schema, --shard, --inbox and --as are for a database")
	}
	target, err := url.Parse(u.url)
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" || target.User != nil ||
		target.RawQuery != "" {
		return usage(cmd, "--url: write the base of the program's HTTP, like https://consumer-1:8080, without credentials")
	}
	handler, err := uiHandler(target)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return serveUI(ctx, cmd.OutOrStdout(), handler, u.listen, "/ui/")
}

// serveInbox serves the page over the database.
func (u *uiCommand) serveInbox(cmd *cobra.Command) error {
	as := cmp.Or(u.as, actor())
	if len(as) > 100 || strings.ContainsFunc(as, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return usage(cmd, "--as: a name has at most 100 bytes, which can be printed")
	}
	return u.withPool(cmd, uiConnections, func(ctx context.Context, pool *pgxpool.Pool, inbox *operate.Inbox) error {
		cfg := u.config()
		examined := doctor.Case{DSN: pool.Config().ConnString(), Schema: cmp.Or(u.schema, cfg.Postgres.Schema), Inbox: inbox.Name(),
			Timeout: checkTimeout}
		if len(cfg.Kafka.Brokers) > 0 {
			examined.Config, examined.ConfigFile = &cfg, u.file
		}
		handler, link, err := inboxHandler(pool, inbox, watched{group: cmp.Or(cfg.Group, inbox.Name()), shard: cfg.Postgres.Shard,
			actor: as, examined: examined, live: cfg.Service(), log: cmd.ErrOrStderr()})
		if err != nil {
			return err
		}
		return serveUI(ctx, cmd.OutOrStdout(), handler, u.listen, link)
	})
}

// uiConnections are for one question, one change and one look at health at a time; the doctor has its own.
const uiConnections = 3

// serveUI serves the page until ctx ends, and says where.
func serveUI(ctx context.Context, out io.Writer, handler http.Handler, listen, path string) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "http://%s%s until Ctrl-C\n", ln.Addr(), path); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	done := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer done()
	if err := server.Serve(ln); ctx.Err() == nil {
		return err
	}
	return nil
}

// uiHandler is the page over the API of the program at target, which can't tell where a browser's page is from.
func uiHandler(target *url.URL) (http.Handler, error) {
	ui, err := page.New(page.Config{API: forward(target)})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/ui/", http.StripPrefix("/ui", ui))
	mux.Handle("/{$}", http.RedirectHandler("/ui/", http.StatusSeeOther))
	return onThisHost(mux), nil
}

// onThisHost lets in who asks for this machine by its address: a web page elsewhere does so by a name of its own.
func onThisHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpjson.ThisHost(r.Host) {
			http.Error(w, "ask for localhost, or for the address that was printed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// forward asks the program at target. Where the browser comes from the page has looked at.
func forward(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Origin")
			r.Out.Header.Del("Sec-Fetch-Site")
		},
		ErrorLog: log.New(io.Discard, "", 0), // the page says it
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			httpjson.Errorf(http.StatusBadGateway, "%s does not answer: %v", target.Redacted(), err).Write(w)
		},
	}
}
