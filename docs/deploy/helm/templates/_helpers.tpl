{{- define "firstseen.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "firstseen.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: consumer
{{- end }}

{{/* The names of config.postgres.shards, or one that is empty. */}}
{{- define "firstseen.shards" -}}
{{ keys (.Values.config.postgres.shards | default dict) | sortAlpha | default (list "") | toJson }}
{{- end }}

{{- define "firstseen.shard" -}}
firstseen/shard: {{ . | quote }}
{{- end }}

{{/* postgres is what the program is given of config.postgres: the chart's dsn_file is that of one server. */}}
{{- define "firstseen.postgres" -}}
{{- $postgres := .Values.config.postgres }}
{{- if $postgres.shards }}{{ $postgres = omit $postgres "dsn_file" }}{{ end }}
{{- toYaml $postgres }}
{{- end }}

{{- define "firstseen.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "firstseen.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "firstseen.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "firstseen.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
