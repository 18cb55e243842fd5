package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer/crashtest"
)

// receives has a function stand for what the samples' webhook calls.
var receives = []string{"--receiver", "notify=shop.receive"}

// samples are the folders of testdata/crashtest. What is broken is found by the run of the name, or by a column that
// differs without any fault.
var samples = []struct {
	name    string
	foundBy string // empty: it is right
	always  bool   // else only where FIRSTSEEN_TEST_CRASHTEST is set
	args    []string
}{
	{"broken-unlogged", "Postgres crashed", true, nil},
	{"broken-dblink", "handlers that fail now and then", true, nil},
	{"broken-clock", "shop.statements.at", false, nil},
	{"broken-order", "another order across keys", false, nil},
	{"broken-sequence", "another order across keys", false, nil},
	{"broken-session", "another order across keys", false, nil},
	{"broken-webhook", "receivers that fail now and then", true, receives},
	{"right-balance", "", true, nil},
	{"right-batch", "", false, nil},
	{"right-dead", "", false, nil},
	{"right-latest", "", false, nil},
	{"right-outbox", "", false, nil},
	{"right-webhook", "", false, receives},
}

func TestCrashTestFindsWhatIsBrokenAndPassesWhatIsRight(t *testing.T) {
	all := os.Getenv("FIRSTSEEN_TEST_CRASHTEST") != ""
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			kills := "9"
			switch {
			case all:
				kills = "30"
			case !s.always:
				t.Skip("FIRSTSEEN_TEST_CRASHTEST is not set")
			}
			args := append([]string{"--kills", kills}, s.args...)
			if s.foundBy == "" {
				result, code := crashtestOf(t, s.name, args...)
				require.True(t, result.Same, "%+v", result)
				require.Equal(t, exitOK, code)
				return
			}
			// By chance another run may be the first to find it.
			result, code := crashtestOf(t, s.name, append(args, "--seed", "7")...)
			require.False(t, result.Same)
			require.Equal(t, exitFailure, code)
			require.Contains(t, found(result), s.foundBy)
		})
	}
}

// found are the columns and the run that differ.
func found(r *crashtest.Result) (names []string) {
	for _, s := range r.Suggestions {
		names = append(names, s.Column)
	}
	for _, run := range r.Runs {
		if len(run.Differences) > 0 {
			names = append(names, run.Name)
		}
	}
	return names
}

// crashtestOf runs the command on one of the samples.
func crashtestOf(t *testing.T, name string, args ...string) (*crashtest.Result, int) {
	t.Helper()
	dir := filepath.Join(root(t), "testdata", "crashtest", name)
	cmd := exec.Command(built(t), append([]string{"crashtest", "--config", "firstseen.yaml", "--schema", "schema.sql",
		"--messages", "sample.jsonl", "--exclude-defaults", "--json"}, args...)...)
	cmd.Dir = dir
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the code tells
	result := &crashtest.Result{}
	require.NoError(t, json.Unmarshal([]byte(stdout.String()), result), "%s", stderr.String())
	t.Logf("%s", stderr.String())
	return result, cmd.ProcessState.ExitCode()
}

func TestCrashTestSaysWhichRowsAndMessagesDifferAndHowToRepeatIt(t *testing.T) {
	junit := filepath.Join(t.TempDir(), "junit.xml")
	dir := filepath.Join(root(t), "testdata", "crashtest", "broken-unlogged")
	cmd := exec.Command(built(t), "crashtest", "--config", "firstseen.yaml", "--schema", "schema.sql", "--messages",
		"sample.jsonl", "--kills", "3", "--seed", "7", "--junit", junit)
	cmd.Dir = dir
	out, err := cmd.Output()
	require.Error(t, err)
	require.Contains(t, string(out), "warning: table shop.journal is unlogged")
	require.Regexp(t, `shop\.journal: missing row payment=p-1 cents=\d+\n`+
		` +of line 1 of the sample, ID p-1, sent to payments/0@0`, string(out))
	require.Regexp(t, `repeat it: firstseen crashtest .*--schema schema.sql --seed 7 --run \d+\n`, string(out))
	require.Contains(t, string(out), "\nDIFFERS: 40 messages")

	text, err := os.ReadFile(junit)
	require.NoError(t, err)
	var suite struct {
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Failure string `xml:"failure"`
		} `xml:"testcase"`
	}
	require.NoError(t, xml.Unmarshal(text, &suite))
	require.Equal(t, 1, suite.Failures)
	last := suite.Cases[len(suite.Cases)-1]
	require.Contains(t, last.Name, "Postgres crashed")
	require.Contains(t, last.Failure, "payment=p-1 ")
}

func TestCrashTestComparesNoTableThatIsNotThere(t *testing.T) {
	dir := filepath.Join(root(t), "testdata", "crashtest", "right-dead")
	cmd := exec.Command(built(t), "crashtest", "--config", "firstseen.yaml", "--schema", "schema.sql", "--messages",
		"sample.jsonl", "--table", "accounts", "--exclude", "shop.accounts.euros")
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.Error(t, cmd.Run())
	require.Equal(t, exitUsage, cmd.ProcessState.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "there is no accounts;")
	require.Contains(t, stderr.String(), "there is no shop.accounts.euros;")
}

func TestCrashTestRefusesWhatCanNotBeTried(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := write("good.yaml", "group: g\ntopics: [{name: orders, handlers: [{name: h, function: f}]}]\n")
	hooks := write("hooks.yaml",
		"group: g\ntopics: [{name: orders, handlers: [{name: h, webhook: {url: 'https://a.example'}}]}]\n")
	rest := write("rest.yaml", "group: g\ntopics: [{pattern: 'orders\\..*', handlers: [{name: h, function: f}]}]\n")
	two := write("two", `{"text": "a", "payload": 1}`)
	for text, args := range map[string][]string{
		"--messages is missing":                   {"--config", good},
		"write webhook=schema.function":           {"--config", hooks, "--messages", write("m", `{}`), "--receiver", "g=f"},
		"message 1 is of topic other":             {"--config", good, "--messages", write("o", `{"topic": "other"}`)},
		"no topic, and the config has several":    {"--config", rest, "--messages", write("m", `{}`)},
		"message 2 is of topic other":             {"--config", rest, "--messages", write("p", "{\"topic\": \"orders.eu\"}\n{\"topic\": \"other\"}")},
		"line 2: json: unknown field \"keys\"":    {"--config", good, "--messages", write("u", "{}\n{\"keys\": 1}")},
		"payload, text and base64: keep one":      {"--config", good, "--messages", two},
		"--kills and --partitions are at least 1": {"--config", good, "--messages", "x", "--kills", "0"},
	} {
		stdout, stderr, code := command(t, append([]string{"crashtest"}, args...)...)
		require.Equal(t, exitUsage, code, text)
		require.Contains(t, stderr, text)
		require.Empty(t, stdout)
	}
}
