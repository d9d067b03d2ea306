{{/*
Selects the series of components in PromQL, by the job that the monitors below give them: the component's Service.
Takes a list of the root and the names of the components; empty if there are none.
*/}}
{{- define "hub-addons.series" -}}
{{- $root := index . 0 -}}
{{- $names := index . 1 -}}
{{- $job := printf "%s-" (include "hub-addons.fullname" $root) -}}
{{- if eq (len $names) 1 -}}
namespace="{{ $root.Release.Namespace }}",job="{{ $job }}{{ first $names }}"
{{- else if $names -}}
namespace="{{ $root.Release.Namespace }}",job=~"{{ $job }}({{ join "|" $names }})"
{{- end -}}
{{- end }}

{{/* The series of the components in which a controller runs; takes a list of the root and the controller's key. */}}
{{- define "hub-addons.seriesOf" -}}
{{- $root := index . 0 -}}
{{- $key := index . 1 -}}
{{- $names := list -}}
{{- range include "hub-addons.components" $root | fromJsonArray -}}
{{- if get . $key -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- include "hub-addons.series" (list $root $names) -}}
{{- end }}

{{/*
The targets of both monitors: every replica, with the name of its component's Service as job. Takes a list of the root
and the values of the monitor.
*/}}
{{- define "hub-addons.endpoint" -}}
{{- $root := index . 0 -}}
{{- $monitor := index . 1 -}}
port: metrics
path: /metrics
{{- with ($monitor.authorization | default dict).credentials }}
authorization:
  credentials:
    name: "{{ .name }}"
    key: "{{ .key }}"
{{- end }}
{{- with $root.Values.metrics.secure }}
{{- if .enabled }}
scheme: https
{{- if not ($monitor.authorization | default dict).credentials }}
# Prometheus' own token, which the hub reviews.
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}
tlsConfig:
  {{- if .certificateSecret }}
  ca:
    secret:
      name: "{{ .certificateSecret }}"
      key: ca.crt
  serverName: "{{ include "hub-addons.fullname" $root }}.{{ $root.Release.Namespace }}.svc"
  {{- else }}
  # Each Pod has its own self-signed certificate.
  insecureSkipVerify: true
  {{- end }}
{{- end }}
{{- end }}
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_component]
    targetLabel: job
    replacement: "{{ include "hub-addons.fullname" $root }}-$1"
{{- end }}
