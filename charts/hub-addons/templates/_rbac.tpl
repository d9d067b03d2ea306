{{/*
Which of a component's controllers need a right, in words; takes a list of the component and the controllers that
would.
*/}}
{{- define "hub-addons.who" -}}
{{- $component := first . -}}
{{- $words := dict "projects" "the profile projector" "provisions" "the access-provider provisioner" "direct" "direct access" "syncs" "the credential syncer" "grants" "credential rights" -}}
{{- $who := list -}}
{{- range rest . -}}
{{- if get $component . -}}
{{- $who = append $who (get $words .) -}}
{{- end -}}
{{- end -}}
{{- join ", " $who -}}
{{- end }}

{{/* Takes a list of the root, the component, the Role's name and its namespace. */}}
{{- define "hub-addons.roleBinding" }}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ index . 2 }}
  namespace: {{ index . 3 }}
  labels:
    {{- include "hub-addons.componentLabels" (list $root $component) | nindent 4 }}
  {{- with include "hub-addons.annotations" $root }}{{ nindent 2 . }}{{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ index . 2 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "hub-addons.fullname" $root }}-{{ $component.name }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
