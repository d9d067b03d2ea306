{{/* The command line of a component, with only its own flags; takes a list of the root and the component. */}}
{{- define "hub-addons.args" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := $root.Values -}}
{{- $access := $values.accessProvider -}}
{{- if $component.serves -}}
{{- include "hub-addons.userServerArgs" $root }}
{{- else -}}
- run
- --feature-gates={{ include "hub-addons.gates" $component }}
- --cluster-manager-name={{ $values.clusterManagerName }}
{{- if or $component.projects $component.syncs $component.grants $component.equips }}
- --compute-bound={{ $values.computeBound }}
{{- end }}
{{- if and $component.projects $values.propagateLabels }}
- --propagate-labels={{ join "," $values.propagateLabels }}
{{- end }}
{{- if and $component.projects $values.propagateClaims }}
- --propagate-claims={{ join "," $values.propagateClaims }}
{{- end }}
{{- $accesses := and $values.consumerAccess.enabled (or $component.grants $component.equips) }}
{{- if or $component.syncs (and $component.grants $accesses) }}
- --require-sync-namespaces={{ $values.credentials.requireSyncNamespaces }}
{{- end }}
{{- if $component.syncs }}
- --trust-restored-tokens={{ $values.credentials.trustRestoredTokens }}
{{- end }}
{{- if or $component.syncs $component.grants $component.equips }}
- {{ printf "--protected-namespaces=%s" (append $values.credentials.protectedNamespaces $root.Release.Namespace | uniq | join ",") | quote }}
{{- end }}
{{- if or $component.grants (and $component.syncs (eq $values.credentials.secretAccess "granted")) }}
- --credential-rights-subject={{ $root.Release.Namespace }}/{{ include "hub-addons.account" (list $root "credentials") }}
{{- end }}
{{- if $accesses }}
{{- if $component.grants }}
- --cluster-access=true
{{- end }}
{{- with $values.consumerAccess.allowedClusterRoles }}
- {{ printf "--allowed-cluster-roles=%s" (join "," .) | quote }}
{{- end }}
{{- end }}
{{- if $component.equips }}
{{- with $values.consumerAccess.permissions }}
- --consumer-permissions={{ . }}
{{- end }}
{{- with $values.consumerAccess.accountNamespace }}
- --consumer-account-namespace={{ . }}
{{- end }}
{{- if $values.consumerAccess.argoCDNamespaces }}
- --access-provider-name={{ $access.name }}
{{- end }}
{{- end }}
{{- if $component.provisions }}
- --access-provider-name={{ $access.name }}
- --ca-overlap={{ $access.caOverlap }}
- --server-check-interval={{ $access.serverCheckInterval }}
{{- $ca := include "hub-addons.namedCa" $root | fromJson }}
{{- if $ca.name }}
- --access-provider-ca={{ $ca.kind }}/{{ $ca.namespace }}/{{ $ca.name }}/{{ $ca.key }}
{{- end }}
{{- if $access.static.server }}
- {{ printf "--access-provider-server=%s" $access.static.server | quote }}
{{- else }}
- --cluster-proxy-require-addon={{ $access.clusterProxy.requireAddon }}
{{- end }}
{{- end }}
{{- if and $values.userServer.enabled (or $component.own $accesses) }}
- {{ printf "--user-server-url=https://%s:9092/{cluster}" (include "hub-addons.userServer" $root) | quote }}
{{- end }}
{{- if $component.own }}
{{- $ca := include "hub-addons.userServerCa" $root | fromJson }}
- --user-server-ca={{ $ca.kind }}/{{ $root.Release.Namespace }}/{{ $ca.name }}/{{ $ca.key }}
{{- if not $component.provisions }}
- --ca-overlap={{ $access.caOverlap }}
- --server-check-interval={{ $access.serverCheckInterval }}
{{- end }}
{{- end }}
- --leader-elect={{ $values.leaderElection }}
{{- if $values.leaderElection }}
- --leader-election-namespace={{ $root.Release.Namespace }}
- --leader-election-id={{ include "hub-addons.lease" $component }}
{{- end }}
- --metrics-bind-address=:8080
{{- include "hub-addons.metricsCertificate" $values }}
- --health-probe-bind-address=:8081
- --log-format={{ $values.log.format }}
- {{ printf "--log-level=%s" $values.log.level | quote }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The flag by which metrics are served over TLS, on a line of its own. */}}
{{- define "hub-addons.metricsCertificate" -}}
{{- if .metrics.secure.enabled }}
- --metrics-certificate={{ ternary "/etc/hub-addons/metrics-certificate" "self-signed" (ne .metrics.secure.certificateSecret "") }}
{{- end }}
{{- end }}

{{/* The command line of the user server. */}}
{{- define "hub-addons.userServerArgs" -}}
{{- $server := .Values.userServer -}}
{{- $proxy := $server.proxyServer -}}
- user-server
- --bind-address=:9092
{{- if $server.certificateSecret }}
- --certificate-directory=/etc/hub-addons/user-server-certificate
{{- else }}
{{- $name := include "hub-addons.userServer" . }}
- --authority={{ .Release.Namespace }}/{{ include "hub-addons.userServerAuthority" . }}
- --serving-names={{ $name }},{{ $name }}.svc
{{- end }}
- --account={{ include "hub-addons.userServerAccount" . }}
- {{ printf "--protected-namespaces=%s" (append .Values.credentials.protectedNamespaces .Release.Namespace | uniq | join ",") | quote }}
- --compute-bound={{ .Values.computeBound }}
- --max-requests-per-namespace={{ int $server.maxRequestsPerNamespace }}
- --refuse-shared-authorities={{ $server.refuseSharedAuthorities }}
- --access-log={{ $server.accessLog }}
- --proxy-server-namespace={{ $proxy.namespace }}
{{- with $proxy.host }}
- --proxy-server-host={{ . }}
{{- end }}
- --metrics-bind-address=:8080
{{- include "hub-addons.metricsCertificate" .Values }}
- --health-probe-bind-address=:8081
- --log-format={{ .Values.log.format }}
- {{ printf "--log-level=%s" .Values.log.level | quote }}
{{- end }}
