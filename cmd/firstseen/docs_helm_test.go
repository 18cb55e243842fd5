package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// chartValues reads values of the chart. Helm itself looks at it in `make deploy-check`; here is what it can't know.
func chartValues(t *testing.T, name string) (values map[string]any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(readDeploy(t, "helm/"+name)), &values))
	return values
}

func TestChartsConfigLoads(t *testing.T) {
	merged := chartValues(t, "values.yaml")["config"].(map[string]any)
	maps.Copy(merged, chartValues(t, "ci/billing.yaml")["config"].(map[string]any))
	text, err := yaml.Marshal(merged)
	require.NoError(t, err)
	require.NoError(t, loadConfig(t, string(text), map[string]string{"postgres-dsn": "postgres://localhost/shop"}))
}

func TestChartsConfigOfShardsLoads(t *testing.T) {
	merged, sharded := chartValues(t, "values.yaml")["config"].(map[string]any), chartValues(t, "ci/sharded.yaml")
	maps.Copy(merged, sharded["config"].(map[string]any)) // without the dsn_file, as the templates have it
	postgres := merged["postgres"].(map[string]any)
	postgres["shard"] = "a" // as --shard has it
	dir, files := t.TempDir(), postgres["shard_dsn_files"].(map[string]any)
	require.Len(t, files, len(postgres["shards"].(map[string]any)))
	for shard := range files {
		files[shard] = filepath.Join(dir, shard)
		require.NoError(t, os.WriteFile(filepath.Join(dir, shard), []byte("postgres://localhost/"+shard), 0o600))
	}
	text, err := yaml.Marshal(merged)
	require.NoError(t, err)
	require.NoError(t, loadConfig(t, string(text), nil))
}

// The chart deploys what kubernetes.yaml does, which is held against the program.
func TestChartDeploysAsTheManifestsDo(t *testing.T) {
	values, deployment := object(chartValues(t, "values.yaml")), kubernetes(t)["Deployment"]
	for value, path := range map[string]string{
		"replicas":                      "spec.replicas",
		"resources":                     "spec.template.spec.containers.resources",
		"podAnnotations":                "spec.template.metadata.annotations",
		"terminationGracePeriodSeconds": "spec.template.spec.terminationGracePeriodSeconds",
	} {
		assert.Equal(t, deployment.at(path), values.at(value), value)
	}
	assert.Equal(t, kubernetes(t)["Secret"].at("metadata.name"), values.at("secret"))

	consumer := readDeploy(t, "helm/templates/consumer.yaml")
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		path := deployment.at("spec.template.spec.containers." + probe + ".httpGet.path")
		assert.Regexp(t, probe+`:\n +httpGet: \{path: `+fmt.Sprint(path)+`, port: http\}`, consumer)
	}
	user := deployment.at("spec.template.spec.securityContext.runAsUser")
	assert.Contains(t, readDeploy(t, "helm/templates/_helpers.tpl"), fmt.Sprintf("runAsUser: %v\n", user))
}

func TestChartRunsWhatThereIs(t *testing.T) {
	templates, err := filepath.Glob(filepath.Join(root(t), "docs", "deploy", "helm", "templates", "*.yaml"))
	require.NoError(t, err)
	run := 0
	for _, path := range templates {
		text := readDeploy(t, "helm/templates/"+filepath.Base(path))
		for _, m := range regexp.MustCompile(`args: \[([^\]{]+)`).FindAllStringSubmatch(text, -1) {
			run++
			assert.NoError(t, checkCommandLine(strings.Split(m[1], ", ")), m[1])
		}
	}
	require.Equal(t, 3, run)
}
