{{- define "vivavoce.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "vivavoce.selector" -}}
app.kubernetes.io/name: vivavoce
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "vivavoce.labels" -}}
{{ include "vivavoce.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* http.public_url -> VIVAVOCE_HTTP_PUBLIC_URL */ -}}
{{- define "vivavoce.variable" -}}
VIVAVOCE_{{ . | replace "." "_" | upper }}
{{- end -}}

{{- define "vivavoce.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "vivavoce.rayContainer" }}
env:
  # No report to Ray's maker, not even that reports are off.
  - {name: RAY_USAGE_STATS_ENABLED, value: "0"}
  - {name: RAY_USAGE_STATS_REPORT_URL, value: ""}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- end }}
