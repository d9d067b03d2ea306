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
{{- $ca := splitList "/" (ternary $access.static.ca $access.clusterProxy.ca (eq $access.source "static")) -}}
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

{{/*
The consumers, a JSON object; a later values file can remove one with null. The Role of a consumer with access follows the
grant unless its values say otherwise. One with an identity of its own has no Role, and uses the account of the user server.
*/}}
{{- define "hub-addons.consumers" -}}
{{- $consumers := dict -}}
{{- range $name, $consumer := .Values.consumers -}}
{{- if $consumer -}}
{{- $own := deepCopy $consumer -}}
{{- if eq (default "account" .identity) "own" -}}
{{- $_ := set $own "managedServiceAccount" $.Values.userServer.account -}}
{{- else if and .access (not (or .clusters .follow .allSecretsInNamespace)) -}}
{{- $_ := set $own "follow" true -}}
{{- end -}}
{{- $_ := set $own "name" $name -}}
{{- $_ := set $consumers $name $own -}}
{{- end -}}
{{- end -}}
{{- toJson $consumers -}}
{{- end }}

{{/* The consumers with access to clusters, a JSON list. */}}
{{- define "hub-addons.accesses" -}}
{{- $accesses := list -}}
{{- range include "hub-addons.consumers" . | fromJson -}}
{{- if .access -}}
{{- $accesses = append $accesses . -}}
{{- end -}}
{{- end -}}
{{- toJson $accesses -}}
{{- end }}

{{/* Those with an identity of their own, a JSON list. */}}
{{- define "hub-addons.ownIdentities" -}}
{{- $own := list -}}
{{- range include "hub-addons.accesses" . | fromJsonArray -}}
{{- if eq (default "account" .identity) "own" -}}
{{- $own = append $own . -}}
{{- end -}}
{{- end -}}
{{- toJson $own -}}
{{- end }}

{{/*
The accounts with access to clusters, a JSON object of the consumer of each by name; checks.yaml rejects two with one. Those
with an identity of their own share the account of the user server, which is limited to no namespace.
*/}}
{{- define "hub-addons.equipped" -}}
{{- $equipped := dict -}}
{{- range include "hub-addons.accesses" . | fromJsonArray -}}
{{- if eq (default "account" .identity) "own" -}}
{{- $_ := set . "namespace" "" -}}
{{- $_ := set .access "rotation" (dict "validity" "24h0m0s") -}}
{{- end -}}
{{- $_ := set $equipped .managedServiceAccount . -}}
{{- end -}}
{{- toJson $equipped -}}
{{- end }}

{{/*
The consumers that declare the kind of their permissions, a JSON object by ManagedServiceAccount: permissions of the other
kind may exist from before, and are replaced.
*/}}
{{- define "hub-addons.replacing" -}}
{{- $replacing := dict -}}
{{- range $account, $consumer := include "hub-addons.equipped" . | fromJson -}}
{{- if .access.permissions -}}
{{- $_ := set $replacing $account . -}}
{{- end -}}
{{- end -}}
{{- toJson $replacing -}}
{{- end }}

{{/* Whether a consumer has permissions of a kind; takes a list of the root and the kind. */}}
{{- define "hub-addons.hasPermissionsBy" -}}
{{- $kind := index . 1 -}}
{{- $has := false -}}
{{- range include "hub-addons.equipped" (index . 0) | fromJson -}}
{{- if eq (default "ManifestWork" .access.permissions) $kind -}}
{{- $has = true -}}
{{- end -}}
{{- end -}}
{{- if $has }}true{{ end -}}
{{- end }}

{{/* The names of the MultiKueueConfigs that a consumer declares, JSON, if one does; checks.yaml rejects two consumers. */}}
{{- define "hub-addons.multiKueueConfigs" -}}
{{- $names := list -}}
{{- range include "hub-addons.accesses" . | fromJsonArray -}}
{{- with .access.multiKueueConfig -}}{{- $names = append $names . -}}{{- end -}}
{{- range .access.multiKueueConfigs -}}{{- $names = append $names .name -}}{{- end -}}
{{- end -}}
{{- if $names }}{{ toJson $names }}{{ end -}}
{{- end }}

{{/* The consumers that get cluster Secrets of Argo CD, a JSON list. */}}
{{- define "hub-addons.argoCDs" -}}
{{- $consumers := list -}}
{{- range include "hub-addons.accesses" . | fromJsonArray -}}
{{- if kindIs "map" .access.argoCD -}}{{- $consumers = append $consumers . -}}{{- end -}}
{{- end -}}
{{- toJson $consumers -}}
{{- end }}

{{/* The declaration of consumers for the program, JSON. */}}
{{- define "hub-addons.declaration" -}}
{{- $declared := list -}}
{{- range include "hub-addons.accesses" . | fromJsonArray -}}
{{- $one := dict "namespace" .namespace "managedServiceAccount" .managedServiceAccount "clusterRoles" (default list .access.clusterRoles) -}}
{{- if eq (default "account" .identity) "own" -}}
{{- $_ := set $one "identity" "own" -}}
{{- $_ := set $one "name" .name -}}
{{- $_ := set $one "serviceAccounts" .serviceAccountNames -}}
{{- end -}}
{{- with .access.rotation -}}
{{- $_ := set $one "rotation" . -}}
{{- end -}}
{{- with .access.permissions -}}
{{- $_ := set $one "permissions" . -}}
{{- end -}}
{{- with .access.multiKueueConfig -}}
{{- $_ := set $one "multiKueueConfig" . -}}
{{- end -}}
{{- with .access.multiKueueConfigs -}}
{{- $_ := set $one "multiKueueConfigs" . -}}
{{- end -}}
{{- if kindIs "map" .access.argoCD -}}
{{- $_ := set $one "argoCD" .access.argoCD -}}
{{- end -}}
{{- $declared = append $declared $one -}}
{{- end -}}
{{- toJson $declared -}}
{{- end }}

{{/* The Role of a consumer; takes a list of the root and the consumer. */}}
{{- define "hub-addons.consumerRole" -}}
{{- $consumer := index . 1 -}}
{{ include "hub-addons.fullname" (index . 0) }}:cp-creds:{{ $consumer.serviceAccountName }}:{{ $consumer.managedServiceAccount }}
{{- end }}

{{/* Whether a Pod creates a missing CRD, since the chart is rendered without access to a hub. */}}
{{- define "hub-addons.createsCrd" -}}
{{- if and (eq (toString .Values.crds.enabled) "auto") (not (include "hub-addons.hasHub" .)) }}true{{ end -}}
{{- end }}
