{{/*
A security context, without users and groups if OpenShift's restricted-v2 sets them; takes a list of the root and the
context. Empty if no field is left.
*/}}
{{- define "hub-addons.securityContext" -}}
{{- $root := index . 0 -}}
{{- $context := index . 1 -}}
{{- $adapts := toString $root.Values.openshift.adaptSecurityContexts -}}
{{- if eq $adapts "auto" -}}
{{- $adapts = toString ($root.Capabilities.APIVersions.Has "security.openshift.io/v1") -}}
{{- end -}}
{{- if eq $adapts "true" -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" "supplementalGroups" -}}
{{- end -}}
{{- if $context }}{{ toYaml $context }}{{ end -}}
{{- end }}
