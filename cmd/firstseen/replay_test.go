package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer/consumertest"
)

func (s *shop) file() string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "firstseen.yaml")
	require.NoError(s.t, os.WriteFile(path, []byte(s.config(s.db.DSN)), 0o600))
	return path
}

// run runs a command with the shop's config, and requires its exit code.
func (s *shop) run(code int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	stdout, stderr, got := command(s.t, append(args, "--config", s.file())...)
	require.Equal(s.t, code, got, stdout+stderr)
	return stdout, stderr
}

func (s *shop) runJSON(code int, args ...string) (out map[string]any) {
	s.t.Helper()
	stdout, _ := s.run(code, append(args, "--json")...)
	require.NoError(s.t, json.Unmarshal([]byte(stdout), &out), stdout)
	return out
}

func (s *shop) requireBookedOnce(n int) {
	s.t.Helper()
	require.Equal(s.t, n, s.booked())
	require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(), `select count(distinct id) from billing.booked`).Scan(&n))
	require.Equal(s.t, n, s.booked())
}

// moved counts the partitions that a replay from the first message has come forward in.
func (s *shop) moved() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.Pool.QueryRow(s.t.Context(),
		`select count(*) from firstseen.positions where topic = $1 and next_offset > 0`, s.topic).Scan(&n))
	return n
}

func TestReplayThatIsKilledGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := newShop(t, booking)
	s.produce(0, 200)
	s.produce(100, 250)
	args := []string{"replay", s.topic, "--from", "earliest"}
	p := start(t, s.config(s.db.DSN), append(args, "--rate", "40")...)
	// where a position has not, the death makes its messages suspects
	eventually(t, func() bool { return s.moved() == 2 })
	p.signal(syscall.SIGKILL)
	p.exit()
	require.Less(t, s.booked(), 200)

	p = start(t, s.config(s.db.DSN), append(args, "--rate", "40")...)
	p.awaitLog("replay is resumed")
	before := s.booked()
	eventually(t, func() bool { return s.booked() > before })
	p.signal(syscall.SIGINT)
	require.Equal(t, exitInterrupted, p.exit())
	require.Contains(t, p.log.String(), "resumed with ")
	require.Contains(t, p.log.String(), "the same command goes on")

	out := s.runJSON(exitOK, args...)
	require.Equal(t, true, out["resumed"])
	require.Equal(t, true, out["finished"])
	s.requireBookedOnce(250)
	require.EqualValues(t, 350, out["offsets"].(map[string]any)["total"])
	stdout, _ := s.run(exitOK, args...)
	require.Contains(t, stdout, "was finished before; --fresh begins it anew")
	out = s.runJSON(exitOK, append(args, "--fresh")...)
	require.EqualValues(t, 350, out["duplicates"])
	s.requireBookedOnce(250)
}

func TestReplayDryRunTellsWhatTheReplayThenDoes(t *testing.T) {
	s := newShop(t, booking)
	s.produce(0, 100)
	s.produce(50, 150)
	ask := []string{"replay", s.topic, "--from", "earliest", "--to", "latest", "--partitions",
		"0,1", "--handler", "book"}
	told := s.runJSON(exitOK, append(ask, "--dry-run")...)
	require.Zero(t, s.booked())
	require.EqualValues(t, 150, told["new"])
	require.EqualValues(t, 50, told["duplicates"])
	stdout, _ := s.run(exitOK, append(ask, "--dry-run")...)
	require.Contains(t, stdout, "dry run, nothing was written")
	require.Contains(t, stdout, "would be handled")
	done := s.runJSON(exitOK, ask...)
	for _, count := range []string{"read", "new", "duplicates", "conflicts", "parked", "dead", "buried"} {
		require.Equal(t, told[count], done[count], count)
	}
	s.requireBookedOnce(150)
}

// Whoever made it may be gone by then, and the process that has begun it too.
func TestReplayByAJobGoesOnInAnotherProcess(t *testing.T) {
	t.Parallel()
	s := newShop(t, booking)
	s.produce(0, 200)
	stdout, _ := s.run(exitOK, "replay", s.topic, "--from", "2h", "--rate", "40", "--job", "--why", "fill it", "--actor", "ann")
	require.Contains(t, stdout, "200 offsets will be replayed by a process of group "+s.group)
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(stdout)
	require.Zero(t, s.booked())
	// the group's own reading begins behind the topic's end: all that is handled is the replay's
	config := s.config(s.db.DSN) + "start_at: latest\n"
	p := start(t, config, "run")
	eventually(t, func() bool { return s.moved() > 0 && s.booked() > 0 })
	p.signal(syscall.SIGKILL)
	p.exit()
	require.Less(t, s.booked(), 200)
	p = start(t, config, "run")
	eventually(t, func() bool {
		stdout, _ := s.run(exitOK, "jobs", "show", id)
		return strings.Contains(stdout, "done\n") && s.booked() == 200
	})
	s.requireBookedOnce(200)
	stdout, _ = s.run(exitOK, "jobs", "show", id)
	require.Regexp(t, `(?m)^done +200$`, stdout)
	require.Regexp(t, `(?m)^expected +200 offsets$`, stdout)
	require.Regexp(t, `(?m)^of +topic `+s.topic+`, from 20\d\d-\S+Z to latest, at most 40 messages a second$`, stdout)
	require.Regexp(t, `(?m)^messages +\d+ new, `, stdout)
	stdout, _ = s.run(exitOK, "jobs", "list")
	require.Regexp(t, id+` +replay +done +200 +200 `, stdout)
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
}

func TestReplayRefusesWhatItCanNotDo(t *testing.T) {
	s := newShop(t, booking)
	s.produce(0, 10)
	for args, text := range map[string]string{
		"replay":                                                "name one topic",
		"replay " + s.topic:                                     "--from is required",
		"replay " + s.topic + " --from x":                       "--from: ",
		"replay " + s.topic + " --from 1h --to x":               "--to: ",
		"replay other --from earliest":                          "it has: " + s.topic,
		"replay " + s.topic + " --from 1 --handler x":           "it has: book",
		"replay " + s.topic + " --from 1 --on-loss x":           "neither fail nor continue",
		"replay " + s.topic + " --from 1 --rate -1":             "below 0",
		"replay " + s.topic + " --from 1 --job":                 "--why is required with --job",
		"replay " + s.topic + " --from 1 --why x":               "--why is for --job",
		"replay " + s.topic + " --from 1 --job --why x --fresh": "without --name and --fresh",
	} {
		_, stderr := s.run(exitUsage, strings.Fields(args)...)
		require.Contains(t, stderr, text, args)
	}
	_, stderr := s.run(exitFailure, "replay", s.topic, "--from", "earliest", "--partitions", "7")
	require.Contains(t, stderr, "partition 7 does not exist")
	require.Zero(t, s.booked())
}

func TestOffsetsAreShownAndReset(t *testing.T) {
	s := newShop(t, booking)
	s.produce(0, 100)
	p := start(t, s.config(s.db.DSN), "run")
	eventually(t, func() bool { return s.booked() == 100 })
	reset := []string{"offsets", "reset", s.topic, "--to", "earliest", "--why", "test"}
	_, stderr := s.run(exitFailure, reset...)
	require.Contains(t, stderr, "the group has members, stop them first: firstseen at")
	stdout, _ := s.run(exitOK, "offsets", "show")
	require.Contains(t, stdout, "group "+s.group+": Stable, 1 member\n")
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())

	shown := s.runJSON(exitOK, "offsets", "show", s.topic)
	require.Equal(t, "Empty", shown["state"])
	stdout, stderr = s.run(exitFailure, "offsets", "show", s.topic, "none")
	require.Contains(t, stderr, "topic none does not exist")
	require.Contains(t, stdout, "\n"+s.topic+"/1 ", "the other is shown")
	first := shown["partitions"].([]any)[0].(map[string]any)
	require.Equal(t, first["next_offset"], first["committed_offset"])
	require.Zero(t, first["lag"])
	end := strconv.Itoa(int(consumertest.EndOffset(t, s.addr, s.topic, 0)))
	stdout, _ = s.run(exitOK, append(reset, "--dry-run")...)
	require.Contains(t, stdout, end+" read again")
	require.Contains(t, stdout, "nothing was changed")
	require.EqualValues(t, first["next_offset"],
		s.runJSON(exitOK, "offsets", "show")["partitions"].([]any)[0].(map[string]any)["next_offset"])
	stdout, _ = s.run(exitOK, reset...)
	require.Contains(t, stdout, "done: ")
	stdout, _ = s.run(exitOK, "offsets", "reset", s.topic, "--to", "latest", "--dry-run")
	require.Contains(t, stdout, "100 offsets are SKIPPED: no handler will ever see them")
	_, stderr = s.run(exitUsage, "offsets", "reset", s.topic, "--to", "latest", "--why", "test")
	require.Contains(t, stderr, "100 offsets will be skipped for good: give --yes")
	require.EqualValues(t, 0, s.runJSON(exitOK, "offsets", "show")["partitions"].([]any)[0].(map[string]any)["next_offset"])
	out := s.runJSON(exitOK, "offsets", "reset", s.topic, "--to", "2h-ago", "--partitions", "0", "--why", "test")
	require.EqualValues(t, 0, out["partitions"].([]any)[0].(map[string]any)["to"])

	for args, text := range map[string]string{"reset": "name one topic", "reset x": "--to is required",
		"reset x --to y": "--to: ", "reset x --to earliest": "--why is required"} {
		_, stderr := s.run(exitUsage, append([]string{"offsets"}, strings.Fields(args)...)...)
		require.Contains(t, stderr, text)
	}
	start(t, s.config(s.db.DSN), "run")
	s.produce(100, 110)
	eventually(t, func() bool { return s.booked() == 110 })
	s.requireBookedOnce(110)
}

func TestOffsetsAreShownBesideATopicThatIsDenied(t *testing.T) {
	s := newShop(t, booking)
	may := func(kind kmsg.ACLResourceType, name string) kfake.ACL {
		return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: kmsg.ACLOperationDescribe, Allow: true}
	}
	denied := s.topic + "-denied"
	s.addr = consumertest.NewFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(2, s.topic, denied),
		kfake.User("PLAIN", "app", "secret", may(kmsg.ACLResourceTypeGroup, s.group),
			may(kmsg.ACLResourceTypeTopic, s.topic))).Addr
	config := strings.Replace(s.config(s.db.DSN), "kafka: {",
		"kafka: {sasl: {mechanism: plain, username: app, password: secret}, ", 1)
	path := filepath.Join(t.TempDir(), "firstseen.yaml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	stdout, stderr, code := command(t, "offsets", "show", denied, s.topic, "--config", path)
	require.Equal(t, exitFailure, code)
	require.Contains(t, stderr, "the cluster's ACLs do not allow this client to see it: topic "+denied)
	require.Contains(t, stdout, "\n"+s.topic+"/0 ")
	require.Contains(t, stdout, "\n"+s.topic+"/1 ")
	require.NotContains(t, stdout, denied)
	stdout, _, code = command(t, "offsets", "show", denied, s.topic, "--json", "--config", path)
	require.Equal(t, exitFailure, code)
	require.Equal(t, 2, strings.Count(stdout, `"topic": "`+s.topic+`"`), stdout)
}
