{{/*
The Deployments, as a JSON list: a name, and which controllers run in it. One of whose gates none is on is not
there, and with it nothing of what belongs to it.
*/}}
{{- define "hub-addons.components" -}}
{{- $gates := .Values.featureGates -}}
{{- $projector := dict "projects" $gates.clusterProfile -}}
{{- $access := dict "provisions" $gates.clusterProfileAccessProvider "direct" $gates.clusterProfileDirectAccessProvider -}}
{{- $off := dict "projects" false "provisions" false "direct" false "syncs" false -}}
{{- $credentials := merge (dict "name" "credentials" "syncs" $gates.clusterProfileCredSyncer) $off -}}
{{- $candidates := list (merge (dict "name" "profiles") $projector $access $off) $credentials -}}
{{- if .Values.profiles.split -}}
{{- $candidates = list (merge (dict "name" "projector") $projector $off) (merge (dict "name" "access") $access $off) $credentials -}}
{{- end -}}
{{- $running := list -}}
{{- range $candidates -}}
{{- if or .projects .provisions .direct .syncs -}}
{{- $running = append $running . -}}
{{- end -}}
{{- end -}}
{{- toJson $running -}}
{{- end }}

{{/* The gates of one component, every gate named, so that a later default changes nothing here. */}}
{{- define "hub-addons.gates" -}}
ClusterProfile={{ .projects }},ClusterProfileAccessProvider={{ .provisions }},ClusterProfileCredSyncer={{ .syncs }},ClusterProfileDirectAccessProvider={{ .direct }}
{{- end }}

{{/* The Lease's name, as the program makes it of the controllers that run. */}}
{{- define "hub-addons.lease" -}}
hub-addons
{{- if .projects }}-profile-projector{{ end }}
{{- if .provisions }}-access-provisioner{{ end }}
{{- if .direct }}-direct-access{{ end }}
{{- if .syncs }}-credential-syncer{{ end }}
{{- end }}

{{/* The labels of a component; takes a list of the root and the component. */}}
{{- define "hub-addons.componentLabels" -}}
{{ include "hub-addons.labels" (index . 0) }}
app.kubernetes.io/component: {{ (index . 1).name }}
{{- end }}

{{- define "hub-addons.componentSelector" -}}
{{ include "hub-addons.selector" (index . 0) }}
app.kubernetes.io/component: {{ (index . 1).name }}
{{- end }}
