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
- --credential-secret-access={{ $values.credentials.secretAccess }}
- --trust-restored-tokens={{ $values.credentials.trustRestoredTokens }}
{{- end }}
{{- if or $component.syncs $component.grants $component.equips }}
- {{ printf "--protected-namespaces=%s" (append $values.credentials.protectedNamespaces $root.Release.Namespace | uniq | join ",") | quote }}
{{- end }}
{{- if and $component.syncs (eq $values.credentials.secretAccess "granted") }}
- --credential-rights-copies-role={{ include "hub-addons.copiesRole" $root }}
{{- end }}
{{- if $component.grants }}
- --credential-rights-subject={{ $root.Release.Namespace }}/{{ include "hub-addons.account" (list $root "credentials") }}
- --credential-rights-copies-role={{ include "hub-addons.copiesRole" $root }}
- --credential-rights-tokens-role={{ include "hub-addons.tokensRole" $root }}
{{- end }}
{{- if $accesses }}
{{- if $component.grants }}
- --cluster-access=true
{{- end }}
{{- with $values.consumerAccess.allowedClusterRoles }}
- {{ printf "--allowed-cluster-roles=%s" (join "," .) | quote }}
{{- end }}
{{- if $values.userServer.enabled }}
- --user-server-account={{ $values.userServer.account }}
{{- end }}
{{- end }}
{{- if $component.equips }}
{{- with $values.consumerAccess.permissions }}
- --consumer-permissions={{ . }}
{{- end }}
{{- with $values.consumerAccess.accountNamespace }}
- --consumer-account-namespace={{ . }}
{{- end }}
- --consumer-local-cluster={{ $values.consumerAccess.includeLocalCluster }}
{{- with include "hub-addons.openshiftId" $root }}
- --hub-openshift-id={{ . }}
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
{{- if $component.own }}
{{- $ca := include "hub-addons.userServerCa" $root | fromJson }}
- {{ printf "--user-server-url=https://%s:9092/{cluster}" (include "hub-addons.userServer" $root) | quote }}
- --user-server-ca={{ $ca.kind }}/{{ $root.Release.Namespace }}/{{ $ca.name }}/{{ $ca.key }}
{{- with $values.userServer.namespaces }}
- --own-identity-namespaces={{ join "," . }}
{{- end }}
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
{{- if $values.metrics.secure.enabled }}
- --metrics-secure=true
{{- if $values.metrics.secure.certificateSecret }}
- --metrics-certificate-directory=/etc/hub-addons/metrics-certificate
{{- end }}
{{- end }}
- --health-probe-bind-address=:8081
- --log-format={{ $values.log.format }}
- {{ printf "--log-level=%s" $values.log.level | quote }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
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
- --account={{ $server.account }}
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
{{- if .Values.metrics.secure.enabled }}
- --metrics-secure=true
{{- if .Values.metrics.secure.certificateSecret }}
- --metrics-certificate-directory=/etc/hub-addons/metrics-certificate
{{- end }}
{{- end }}
- --health-probe-bind-address=:8081
- --log-format={{ .Values.log.format }}
- {{ printf "--log-level=%s" .Values.log.level | quote }}
{{- end }}
