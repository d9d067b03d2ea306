{{/*
Which of a component's controllers need a permission, as text; takes a list of the component and the controllers that
may need it.
*/}}
{{- define "hub-addons.who" -}}
{{- $component := first . -}}
{{- $words := dict "projects" "the profile projector" "provisions" "the access-provider provisioner" "direct" "direct access" "own" "the own-identity provisioner" "syncs" "the credential syncer" "grants" "credential rights" "equips" "consumer access" "serves" "the user server" -}}
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
  name: "{{ index . 2 }}"
  namespace: "{{ index . 3 }}"
  labels:
    {{- include "hub-addons.componentLabels" (list $root $component) | nindent 4 }}
  {{- with include "hub-addons.annotations" $root }}{{ nindent 2 . }}{{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: "{{ index . 2 }}"
subjects:
  - kind: ServiceAccount
    name: "{{ include "hub-addons.account" (list $root $component.name) }}"
    namespace: "{{ $root.Release.Namespace }}"
{{- end }}

{{/* The object with the trust anchors that the values name, as JSON; without a name, it is the serving certificate of cluster-proxy. */}}
{{- define "hub-addons.namedCa" -}}
{{- $access := .Values.accessProvider -}}
{{- $ca := splitList "/" (ternary $access.static.ca $access.clusterProxy.ca (ne $access.static.server "")) -}}
{{- if eq (len $ca) 4 -}}
{{- toJson (dict "kind" (index $ca 0) "namespace" (index $ca 1) "name" (index $ca 2) "key" (index $ca 3)) -}}
{{- else -}}
{{- toJson (dict "namespace" "" "name" "") -}}
{{- end -}}
{{- end }}

{{/*
The namespace of the Role by which the provisioner reads trust anchors; empty if a ClusterRole is used. A Role in a
namespace that does not exist would fail the installation.
*/}}
{{- define "hub-addons.anchorsNamespace" -}}
{{- $ca := include "hub-addons.namedCa" . | fromJson -}}
{{- $namespace := ternary $ca.namespace .Values.accessProvider.clusterProxy.namespace (ne $ca.name "") -}}
{{- $missing := and (include "hub-addons.hasHub" .) (ne $namespace .Release.Namespace) (not (lookup "v1" "Namespace" "" $namespace)) -}}
{{- if or $ca.name (not $missing) -}}{{ $namespace }}{{- end -}}
{{- end }}

{{/* Whether a Pod creates a missing CRD, since the chart is rendered without access to a hub. */}}
{{- define "hub-addons.createsCrd" -}}
{{- if and (eq (toString .Values.crds.enabled) "auto") (not (include "hub-addons.hasHub" .)) }}true{{ end -}}
{{- end }}
