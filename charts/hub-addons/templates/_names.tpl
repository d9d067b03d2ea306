{{/* The prefix of every name, short enough that names with suffixes are valid label values. */}}
{{- define "hub-addons.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "hub-addons.selector" -}}
app.kubernetes.io/name: "{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}"
app.kubernetes.io/instance: "{{ .Release.Name }}"
{{- end }}

{{- define "hub-addons.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "hub-addons.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: hub-addons
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of every object, as a block, or nothing. */}}
{{- define "hub-addons.annotations" -}}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "hub-addons.registry" -}}
{{ default (dig "imageRegistry" "" (default dict .Values.global)) .Values.image.registry }}
{{- end }}

{{/* The Secrets for pulling the image, as a JSON list. */}}
{{- define "hub-addons.pullSecrets" -}}
{{- $secrets := list }}
{{- range default (dig "imagePullSecrets" list (default dict .Values.global)) .Values.imagePullSecrets }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- toJson $secrets }}
{{- end }}

{{- define "hub-addons.image" -}}
{{- $image := .Values.image -}}
{{- with include "hub-addons.registry" . }}{{ trimSuffix "/" . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{/* The names of the other entries in status.accessProviders, which are the program's. */}}
{{- define "hub-addons.directProvider" -}}open-cluster-management-direct{{- end }}
{{- define "hub-addons.ownProvider" -}}open-cluster-management-own-identity{{- end }}

{{/* The user server's ManagedServiceAccount on each cluster: tokens of names that begin like this are never copied. */}}
{{- define "hub-addons.userServerAccount" -}}hub-addons-user-server{{- end }}

{{/* A component's ServiceAccount; takes a list of the root and the component's name. */}}
{{- define "hub-addons.account" -}}
{{- $root := index . 0 -}}
{{ default (include "hub-addons.fullname" $root) $root.Values.serviceAccount.name }}-{{ index . 1 }}
{{- end }}

{{/* The user name of a component's ServiceAccount; takes a list of the root and the component's name. */}}
{{- define "hub-addons.username" -}}
system:serviceaccount:{{ (index . 0).Release.Namespace }}:{{ include "hub-addons.account" . }}
{{- end }}

{{/*
Whether the chart is rendered with access to a hub; helm template and Argo CD render without. Every hub has the
namespace default.
*/}}
{{- define "hub-addons.hasHub" -}}
{{- if lookup "v1" "Namespace" "" "default" }}true{{ end -}}
{{- end }}

{{/* The ClusterRole with the syncer's permissions for copies, where it is bound; the RoleBindings have the same name. */}}
{{- define "hub-addons.copiesRole" -}}
{{ include "hub-addons.account" (list . "credentials") }}-copies
{{- end }}

{{/* The ClusterRole that lists the tokens that the syncer may read. */}}
{{- define "hub-addons.tokensRole" -}}
{{ include "hub-addons.account" (list . "credentials") }}-tokens
{{- end }}
