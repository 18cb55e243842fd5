package schemas_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest/child"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/schemas"
)

// apicurioVersion is the last that runs on Java 17, as Kafka does.
const apicurioVersion = "2.6.13.Final"

const (
	nativeAPI     = "/apis/registry/v2"
	compatibleAPI = "/apis/ccompat/v7"
)

// apicurio is a real registry, which Maven fetches at the first call on a machine. Its schemas are in memory.
type apicurio struct {
	t       *testing.T
	url     string
	process *child.Process
}

func startApicurio(t *testing.T) *apicurio {
	t.Helper()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("FIRSTSEEN_REQUIRE_KAFKA") != "" {
				t.Fatalf("FIRSTSEEN_REQUIRE_KAFKA is set and %s is not installed", program)
			}
			t.Skipf("%s is not installed", program)
		}
	}
	dir, err := child.Cache("apicurio-"+apicurioVersion, fetchApicurio)
	require.NoError(t, err)
	port, err := child.FreePort()
	require.NoError(t, err)
	java, err := exec.LookPath("java")
	require.NoError(t, err)
	log := filepath.Join(t.TempDir(), "log")
	a := &apicurio{t: t, url: "http://" + child.Loopback(port)}
	a.process, err = child.Start(child.Spec{Path: java, LogFile: log, Dir: t.TempDir(), Args: []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dquarkus.http.host=127.0.0.1", fmt.Sprint("-Dquarkus.http.port=", port),
		"-jar", filepath.Join(dir, "apicurio-registry-app-"+apicurioVersion+"-runner.jar")}})
	require.NoError(t, err)
	t.Cleanup(a.stop)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ping := open(t, schemas.Config{URL: a.url + nativeAPI})
	err = a.process.Await(ctx, 100*time.Millisecond, ping.Ping)
	require.NoError(t, err, "%s", child.Tail(log))
	return a
}

func (a *apicurio) stop() { a.process.Stop(syscall.SIGKILL, time.Minute) }

func fetchApicurio(dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return err
	}
	return child.Run(child.Spec{Path: mvn, LogFile: dir + ".log", Args: []string{"-q", "-B",
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack", "-Dproject.basedir=" + dir,
		"-Dartifact=io.apicurio:apicurio-registry-app:" + apicurioVersion + ":tar.gz:all", "-DoutputDirectory=" + dir}},
		10*time.Minute)
}

// post creates an artifact by Apicurio's own API and returns its IDs.
func (a *apicurio) post(id, kind, content string, refs ...map[string]string) (global, contentID uint64) {
	a.t.Helper()
	if refs == nil {
		refs = []map[string]string{}
	}
	body, err := json.Marshal(map[string]any{"content": content, "references": refs})
	require.NoError(a.t, err)
	q, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+nativeAPI+"/groups/default/artifacts",
		bytes.NewReader(body))
	require.NoError(a.t, err)
	for name, value := range map[string]string{"X-Registry-ArtifactId": id, "X-Registry-ArtifactType": kind,
		"X-Registry-Version": "1", "Content-Type": "application/create.extended+json"} {
		q.Header.Set(name, value)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
	require.NoError(a.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(a.t, err)
	require.Equal(a.t, http.StatusOK, answer.StatusCode, "%s", text)
	var created struct {
		GlobalID  uint64 `json:"globalId"`
		ContentID uint64 `json:"contentId"`
	}
	require.NoError(a.t, json.Unmarshal(text, &created))
	return created.GlobalID, created.ContentID
}

// A real registry, by both of its APIs, as its own serializers and Confluent's write.
func TestApicurio(t *testing.T) {
	a := startApicurio(t)
	client, err := sr.NewClient(sr.URLs(a.url+compatibleAPI), sr.HTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
	require.NoError(t, err)
	create := func(subject, text string, kind sr.SchemaType, refs ...sr.SchemaReference) uint32 {
		t.Helper()
		s, err := client.CreateSchema(t.Context(), subject, sr.Schema{Schema: text, Type: kind, References: refs})
		require.NoError(t, err, subject)
		return uint32(s.ID)
	}
	money := `{"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}`
	order := `{"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "price", "type": "shop.Money"}]}`
	avroID := create("payments-value", payment, sr.TypeAvro)
	protoID := create("proto-value", paymentProto, sr.TypeProtobuf)
	jsonID := create("json-value", `{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}`, sr.TypeJSON)
	create("money-value", money, sr.TypeAvro)
	orderID := create("order-value", order, sr.TypeAvro, sr.SchemaReference{Name: "shop.Money", Subject: "money-value", Version: 1})

	compatible := open(t, schemas.Config{URL: a.url + compatibleAPI})
	require.NoError(t, compatible.Ping(t.Context()))
	f := compatible.Format(schemas.Confluent)
	for want, value := range map[string][]byte{
		`{"id":42,"account":"alice","amount":12.30}`: framed(avroID, ofPayment),
		`{"text":"hi"}`:         framed(protoID, "\x00\x0a\x02hi"),
		`{"a":1}`:               framed(jsonID, `{"a":1}`),
		`{"price":{"cents":5}}`: framed(orderID, "\x0a"),
	} {
		got, err := read(t, f, value)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = read(t, f, framed(1_000_000, ofPayment))
	require.EqualError(t, err, "the schema registry does not know schema ID 1000000")

	native := open(t, schemas.Config{URL: a.url + nativeAPI})
	a.post("own-money", "AVRO", money)
	global, content := a.post("own-order", "AVRO", order,
		map[string]string{"groupId": "default", "artifactId": "own-money", "version": "1", "name": "shop.Money"})
	protoGlobal, _ := a.post("own-proto", "PROTOBUF", paymentProto+"\n")
	long := func(id uint64, value string) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{0}, id), value...)
	}
	f = native.Format(schemas.Apicurio)
	for want, values := range map[string][][]byte{
		`{"price":{"cents":5}}`: {long(global, "\x0a"), framed(uint32(content), "\x0a")},
		`{"text":"hi"}`:         {long(protoGlobal, "\x06\x0a\x04Note\x0a\x02hi")},
	} {
		for _, value := range values {
			got, err := read(t, f, value)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	got, err := read(t, f, []byte("\x0a"), dedup.Header{Key: "apicurio.value.globalId", Value: long(global, "")[1:]})
	require.NoError(t, err)
	require.Equal(t, `{"price":{"cents":5}}`, got)
	_, err = read(t, f, long(1_000_000, "\x0a"))
	require.EqualError(t, err, "the schema registry does not know schema global ID 1000000")

	a.stop()
	_, err = read(t, f, long(2_000_000, "\x0a"))
	require.Equal(t, "unavailable", handlers.ReasonOf(err))
}
