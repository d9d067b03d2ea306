{{/*
The Deployments, as a JSON list: a name, and which controllers run in it. One of whose gates none is on is not
there, and with it nothing of what belongs to it. The first of those that use ClusterProfiles "uses" them, and creates
their CRD where it has to.

Who gives the syncer its rights to Secrets ("grants") must not have any itself, so it runs beside the projector,
which watches the same sets and bindings and has none either; where nothing of profiles runs, alone.
*/}}
{{- define "hub-addons.components" -}}
{{- $gates := .Values.featureGates -}}
{{- $grants := and $gates.clusterProfileCredSyncer (eq .Values.credentials.secretAccess "granted") -}}
{{- $off := dict "projects" false "provisions" false "direct" false "syncs" false "grants" false -}}
{{- $projector := dict "projects" $gates.clusterProfile -}}
{{- $access := dict "provisions" $gates.clusterProfileAccessProvider "direct" $gates.clusterProfileDirectAccessProvider -}}
{{- $credentials := merge (dict "name" "credentials" "syncs" $gates.clusterProfileCredSyncer) $off -}}
{{- $first := merge (dict "name" "profiles" "grants" $grants) $projector $access $off -}}
{{- $candidates := list $first $credentials -}}
{{- if .Values.profiles.split -}}
{{- $first = merge (dict "name" "projector" "grants" $grants) $projector $off -}}
{{- $candidates = list $first (merge (dict "name" "access") $access $off) $credentials -}}
{{- end -}}
{{- if not (or $first.projects $first.provisions $first.direct) -}}
{{- $_ := set $first "name" "rights" -}}
{{- end -}}
{{- $running := list -}}
{{- $uses := true -}}
{{- range $candidates -}}
{{- if or .projects .provisions .direct .syncs .grants -}}
{{- $_ := set . "uses" (and $uses (or .projects .provisions .direct .syncs)) -}}
{{- $uses = and $uses (not .uses) -}}
{{- $running = append $running . -}}
{{- end -}}
{{- end -}}
{{- toJson $running -}}
{{- end }}

{{/* The gates of one component, every gate named, so that a later default changes nothing here. */}}
{{- define "hub-addons.gates" -}}
ClusterProfile={{ .projects }},ClusterProfileAccessProvider={{ .provisions }},ClusterProfileCredSyncer={{ .syncs }},ClusterProfileCredRights={{ .grants }},ClusterProfileDirectAccessProvider={{ .direct }}
{{- end }}

{{/* The names of the Leases, one for each controller, as the program makes them. */}}
{{- define "hub-addons.leases" -}}
{{- $component := . -}}
{{- $names := dict "projects" "profile-projector" "provisions" "access-provisioner" "direct" "direct-access" "syncs" "credential-syncer" "grants" "credential-rights" -}}
{{- $leases := list -}}
{{- range list "projects" "provisions" "direct" "syncs" "grants" -}}
{{- if get $component . -}}
{{- $leases = append $leases (printf "hub-addons-%s" (get $names .)) -}}
{{- end -}}
{{- end -}}
{{- join ", " $leases -}}
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

{{/* The volume with what a Pod reaches the hub by: a token of one hour, the hub's CA and the namespace. */}}
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
