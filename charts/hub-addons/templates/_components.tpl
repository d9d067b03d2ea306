{{/*
The Deployments, as a JSON list: their names and controllers. A Deployment whose gates are all disabled is omitted,
with everything that belongs to it. The first one that uses ClusterProfiles ("uses") creates their CRD if necessary.

The controller that grants the syncer its permissions for Secrets ("grants") must not have any itself. So it runs with
the projector, which watches the same sets and bindings and has none either, or alone if no controller of profiles runs.
The controller that equips consumers with accounts and permissions on clusters runs alone, since no other one needs what
it may write. So does the user server: it has credentials of every cluster, and writes nothing on the hub.
*/}}
{{- define "hub-addons.components" -}}
{{- $gates := .Values.featureGates -}}
{{- $grants := and $gates.clusterProfileCredSyncer (eq .Values.credentials.secretAccess "granted") -}}
{{- $off := dict "projects" false "provisions" false "direct" false "own" false "syncs" false "grants" false "equips" false "serves" false -}}
{{- $projector := dict "projects" $gates.clusterProfile -}}
{{- $access := dict "provisions" $gates.clusterProfileAccessProvider "direct" $gates.clusterProfileDirectAccessProvider "own" .Values.userServer.enabled -}}
{{- $credentials := merge (dict "name" "credentials" "syncs" $gates.clusterProfileCredSyncer) $off -}}
{{- $first := merge (dict "name" "profiles" "grants" $grants) $projector $access $off -}}
{{- $candidates := list $first $credentials -}}
{{- if not (or $first.projects $first.provisions $first.direct $first.own) -}}
{{- $_ := set $first "name" "rights" -}}
{{- end -}}
{{- if .Values.consumerAccess.enabled -}}
{{- $candidates = append $candidates (merge (dict "name" "consumers" "equips" true) $off) -}}
{{- end -}}
{{- if .Values.userServer.enabled -}}
{{- $candidates = append $candidates (merge (dict "name" "user-server" "serves" true) $off) -}}
{{- end -}}
{{- $running := list -}}
{{- $uses := true -}}
{{- range $candidates -}}
{{- if or .projects .provisions .direct .own .syncs .grants .equips .serves -}}
{{- $_ := set . "uses" (and $uses (or .projects .provisions .direct .own .syncs)) -}}
{{- $uses = and $uses (not .uses) -}}
{{- $running = append $running . -}}
{{- end -}}
{{- end -}}
{{- toJson $running -}}
{{- end }}

{{/* The gates of one component: all gates are listed, so that later defaults have no effect. */}}
{{- define "hub-addons.gates" -}}
ClusterProfile={{ .projects }},ClusterProfileAccessProvider={{ .provisions }},ClusterProfileCredSyncer={{ .syncs }},ClusterProfileCredRights={{ .grants }},ClusterProfileConsumers={{ .equips }},ClusterProfileDirectAccessProvider={{ .direct }},ClusterProfileOwnIdentityProvider={{ .own }}
{{- end }}

{{/* The Lease of a component: that of its first controller, by which credential rights and explain find it. */}}
{{- define "hub-addons.lease" -}}
{{- if .syncs }}hub-addons-credential-syncer
{{- else if .projects }}hub-addons-profile-projector
{{- else if .provisions }}hub-addons-access-provisioner
{{- else if .grants }}hub-addons-credential-rights
{{- else if .equips }}hub-addons-consumer-access
{{- else if .direct }}hub-addons-direct-access
{{- else if .own }}hub-addons-own-identity-provisioner
{{- end }}
{{- end }}

{{/* The name by which applications reach the user server. */}}
{{- define "hub-addons.userServer" -}}
{{ include "hub-addons.fullname" . }}-user-server.{{ .Release.Namespace }}
{{- end }}

{{/* The name of the Secret and the ConfigMap of the authority by which the user server issues its own certificate. */}}
{{- define "hub-addons.userServerAuthority" -}}
{{ include "hub-addons.fullname" . }}-user-server-authority
{{- end }}

{{/* The Secret or ConfigMap with the CA of the user server's certificate, as JSON. */}}
{{- define "hub-addons.userServerCa" -}}
{{- $server := .Values.userServer -}}
{{- $own := printf "configmap/%s/ca.crt" (include "hub-addons.userServerAuthority" .) -}}
{{- $given := default (printf "secret/%s/ca.crt" $server.certificateSecret) $server.ca -}}
{{- $ca := splitList "/" (ternary $given $own (ne $server.certificateSecret "")) -}}
{{- toJson (dict "kind" (index $ca 0) "name" (index $ca 1) "key" (index $ca 2)) -}}
{{- end }}

{{/* The labels of a component; takes a list of the root and the component. */}}
{{- define "hub-addons.componentLabels" -}}
{{ include "hub-addons.labels" (index . 0) }}
app.kubernetes.io/component: "{{ (index . 1).name }}"
{{- end }}

{{- define "hub-addons.componentSelector" -}}
{{ include "hub-addons.selector" (index . 0) }}
app.kubernetes.io/component: "{{ (index . 1).name }}"
{{- end }}

{{/* The volume for access to the hub: a token that is valid for an hour, the hub's CA and the namespace. */}}
{{- define "hub-addons.hubAccess" -}}
- name: hub-access
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - {key: ca.crt, path: ca.crt}
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end }}
