{{/*
A policy and its binding; takes a list of the root, the component (or another value of the label), the name, the spec as
text and, if the policy has a paramKind, the paramRef as text. If a policy cannot be evaluated, it denies the request:
failurePolicy is Fail.
*/}}
{{- define "hub-addons.policy" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $name := index . 2 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: "{{ $name }}"
  labels:
    {{- include "hub-addons.componentLabels" (list $root $component) | nindent 4 }}
  {{- with include "hub-addons.annotations" $root }}{{ nindent 2 . }}{{- end }}
spec:
  failurePolicy: Fail
  {{- index . 3 | nindent 2 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: "{{ $name }}"
  labels:
    {{- include "hub-addons.componentLabels" (list $root $component) | nindent 4 }}
  {{- with include "hub-addons.annotations" $root }}{{ nindent 2 . }}{{- end }}
spec:
  policyName: "{{ $name }}"
  {{- if gt (len .) 4 }}
  paramRef:
    {{- index . 4 | nindent 4 }}
  {{- end }}
  validationActions:
    {{- toYaml $root.Values.policies.validationActions | nindent 4 }}
{{- end }}

{{/* Whether the policies are in force. */}}
{{- define "hub-addons.guarded" -}}
{{- if and .Values.policies.enabled (has "Deny" .Values.policies.validationActions) }}true{{ end -}}
{{- end }}

{{/* CEL variables: labels and annotations before and after. */}}
{{- define "hub-addons.cel.metadataVariables" -}}
- name: labels
  expression: "object == null ? {} : object.metadata.?labels.orValue({})"
- name: annotations
  expression: "object == null ? {} : object.metadata.?annotations.orValue({})"
- name: oldLabels
  expression: "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})"
- name: oldAnnotations
  expression: "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})"
{{- end }}

{{/*
Validation: no labels and annotations but these are set; takes the lists of their keys, and prefixes of labels. Others could do
more than describe the object: controllers copy it, select it or delete it by them. What users have set stays.
*/}}
{{- define "hub-addons.cel.onlyKeys" -}}
- expression: >-
    variables.labels.all(key, key in {{ include "hub-addons.cel.keys" .labels }}
      {{- range .prefixes }} || key.startsWith('{{ . }}'){{ end }}
      || variables.oldLabels[?key] == variables.labels[?key])
    && variables.annotations.all(key, key in {{ include "hub-addons.cel.keys" .annotations }}
      || variables.oldAnnotations[?key] == variables.annotations[?key])
  message: hub-addons must not set labels and annotations that are not its own
  reason: Forbidden
{{- end }}

{{- define "hub-addons.cel.keys" -}}
[{{ range $number, $key := . }}{{ if $number }}, {{ end }}'{{ $key }}'{{ end }}]
{{- end }}

{{/*
CEL: whether annotations, label and name of a Secret agree on its source; a long label is shortened and ends with a
hash. Takes a list of the object and its labels and annotations.
*/}}
{{- define "hub-addons.cel.isRecorded" -}}
{{- $object := index . 0 -}}
{{- $label := printf "%s[?'authentication.open-cluster-management.io/synced-from'].orValue('')" (index . 1) -}}
{{- $cluster := printf "%s[?'authentication.open-cluster-management.io/cluster-name'].orValue('')" (index . 2) -}}
{{- $account := printf "%s[?'authentication.open-cluster-management.io/managed-serviceaccount'].orValue('')" (index . 2) -}}
{{ $cluster }} + '-'
  + {{ $account }} == {{ $object }}.metadata.name
&& ({{ $label }} == {{ $object }}.metadata.name
  || (size({{ $object }}.metadata.name) > 63 && size({{ $label }}) == 63
    && {{ $object }}.metadata.name.startsWith({{ $label }}.substring(0, 52))))
{{- end }}

{{/* CEL variables: the status before and after, as maps, empty if missing. */}}
{{- define "hub-addons.cel.statusVariables" -}}
- name: before
  expression: "oldObject != null && has(oldObject.status) ? dyn(oldObject.status) : dyn({})"
- name: after
  expression: "object != null && has(object.status) ? dyn(object.status) : dyn({})"
{{- end }}

{{/* CEL: whether only these fields of the status differ; takes a list of names. */}}
{{- define "hub-addons.cel.onlyFields" -}}
{{- $fields := printf "['%s']" (join "', '" .) -}}
variables.after.all(field, field in {{ $fields }}
  || (field in variables.before && variables.after[field] == variables.before[field]))
&& variables.before.all(field, field in {{ $fields }} || field in variables.after)
{{- end }}

{{/* CEL: whether only our entries of a list in the status differ; takes a dict of field, key and ours. */}}
{{- define "hub-addons.cel.onlyEntries" -}}
{{- $ours := printf "['%s']" (join "', '" .ours) -}}
variables.after.?{{ .field }}.orValue([]).filter(entry, !(entry.{{ .key }} in {{ $ours }}))
== variables.before.?{{ .field }}.orValue([]).filter(entry, !(entry.{{ .key }} in {{ $ours }}))
{{- end }}

{{- define "hub-addons.cel.isStatus" -}}
has(request.subResource) && request.subResource == 'status'
{{- end }}

{{/* The namespaces for which the policies refuse copies and permissions on Secrets, whatever is bound there. */}}
{{- define "hub-addons.protected" -}}
{{- concat (list "kube-system" "kube-public" "kube-node-lease") (append .Values.credentials.protectedNamespaces .Release.Namespace) | uniq | join ", " -}}
{{- end }}

{{/* A CEL expression: whether a namespace is one of them; takes the root and the namespace. */}}
{{- define "hub-addons.isProtected" -}}
{{- $namespace := index . 1 -}}
{{- $names := list -}}
{{- $tests := list -}}
{{- range include "hub-addons.protected" (index . 0) | splitList ", " -}}
{{- if hasSuffix "*" . -}}
{{- $tests = append $tests (printf "%s.startsWith('%s')" $namespace (trimSuffix "*" .)) -}}
{{- else -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- prepend $tests (printf "%s in ['%s']" $namespace (join "', '" $names)) | join " || " -}}
{{- end }}
