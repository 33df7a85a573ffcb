{{- define "berth.name" -}}
{{ .Values.nameOverride | default "berth" }}
{{- end }}

{{- define "berth.labels" -}}
app.kubernetes.io/name: {{ include "berth.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: berth
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ include "berth.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "berth.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Image that VMs pull: their own value, or that of the same release, whose repository has a suffix. */ -}}
{{- define "berth.vmImage" -}}
{{- $image := .root.Values.image -}}
{{ .own | default (printf "%s-%s:%s" $image.repository .name ($image.tag | default .root.Chart.AppVersion)) }}
{{- end }}

{{- define "berth.agentImage" -}}
{{ include "berth.vmImage" (dict "root" . "name" "agent" "own" .Values.agentImage) }}
{{- end }}

{{- define "berth.gatewayUrl" -}}
{{ .Values.gatewayUrl | default (printf "https://%s" .Values.baseDomain) }}
{{- end }}

{{- /* What all pods have in common: nothing of the node, no rights, nothing to write to. A program's own values come on top. */ -}}
{{- define "berth.podSecurity" -}}
{{- $common := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{ toYaml (mergeOverwrite $common (deepCopy (.own | default dict))) }}
{{- end }}

{{- define "berth.containerSecurity" -}}
{{- $common := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{ toYaml (mergeOverwrite $common (deepCopy (.own | default dict))) }}
{{- end }}

{{- /* Labels of a program's pods. */ -}}
{{- define "berth.podLabels" -}}
{{ include "berth.labels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .own }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Path of the own authorities in the pods. Empty: there are none. */}}
{{- define "berth.caFile" -}}
{{- with .Values.caCertificates }}{{- if .configMap -}}
/etc/berth/ca/{{ .key }}
{{- end }}{{- end }}
{{- end }}

{{- define "berth.caMount" -}}
- name: ca-certificates
  mountPath: /etc/berth/ca
  readOnly: true
{{- end }}

{{- define "berth.caVolume" -}}
- name: ca-certificates
  configMap:
    name: {{ .Values.caCertificates.configMap }}
    items:
      - key: {{ .Values.caCertificates.key }}
        path: {{ .Values.caCertificates.key }}
{{- end }}

{{- define "berth.commonEnv" -}}
- name: BERTH_SYSTEM_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: BERTH_LOG_LEVEL
  value: {{ .Values.logLevel | quote }}
{{- with .Values.proxy }}
{{- with .http }}
- name: HTTP_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .https }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .noProxy }}
- name: NO_PROXY
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- with include "berth.caFile" . }}
- name: NODE_EXTRA_CA_CERTS
  value: {{ . }}
{{- end }}
{{- with .Values.limits }}
{{- /* Helm reads numbers as floats: int64 keeps 1000000 from becoming 1e+06. */}}
{{- $limits := dict }}
{{- range $name, $limit := . }}{{- $_ := set $limits $name (int64 $limit) }}{{- end }}
- name: BERTH_PROJECT_LIMITS
  value: {{ toJson $limits | quote }}
{{- end }}
{{- $caps := dict }}
{{- range $name, $cap := .Values.caps }}
{{- /* A cap of 0 counts. Helm reads a decimal number of --set as text. */}}
{{- if or (kindIs "invalid" $cap) (eq (toString $cap) "") }}
{{- else if has $name (list "maxVms" "maxGpus" "maxIdleVms") }}{{ $_ := set $caps $name (int64 $cap) }}
{{- else if hasSuffix "Usd" $name }}{{ $_ := set $caps $name (float64 $cap) }}
{{- else }}{{ $_ := set $caps $name $cap }}{{ end }}
{{- end }}
{{- /* `helm upgrade --reuse-values` lacks the values that a former version had not. */}}
{{- if (.Values.facade.sessions | default dict).enabled }}
- name: BERTH_SESSIONS
  value: "true"
{{- end }}
{{- with (.Values.webhooks | default dict).privateReceivers }}
- name: BERTH_PRIVATE_RECEIVERS
  value: {{ join "," . | quote }}
{{- end }}
{{- with $caps }}
- name: BERTH_CAPS
  value: {{ toJson . | quote }}
{{- end }}
{{- with .Values.defaultReuseIdleSeconds }}
- name: BERTH_DEFAULT_REUSE_IDLE_SECONDS
  value: {{ . | int64 | quote }}
{{- end }}
{{- with .Values.identity.issuer }}
- name: BERTH_IDENTITY_ISSUER
  value: {{ . | quote }}
{{- end }}
{{- with .Values.watchNamespace }}
- name: BERTH_WATCH_NAMESPACE
  value: {{ . | quote }}
{{- end }}
# Health is asked for on this port, so it is there without metrics, too. An empty address is all, of IPv4 and IPv6.
- name: BERTH_METRICS_PORT
  value: {{ .Values.metrics.port | quote }}
- name: BERTH_METRICS_HOST
  value: ""
{{- end }}

{{- /* The pods that `helm test` makes, whom network policies let in. */ -}}
{{- define "berth.testPeer" -}}
- podSelector:
    matchLabels:
      {{- include "berth.selector" (dict "root" . "component" "test") | nindent 6 }}
{{- end }}

{{- /* Over zones and nodes, unless a component has rules of its own. */ -}}
{{- define "berth.spread" -}}
{{- with .own -}}
{{ toYaml . }}
{{- else -}}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "berth.selector" (dict "root" $.root "component" $.component) | nindent 6 }}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "berth.selector" (dict "root" $.root "component" $.component) | nindent 6 }}
{{- end -}}
{{- end }}

{{- /* What the schema can't say. */ -}}
{{- define "berth.check" -}}
{{- if ne (empty .Values.oidc.issuer) (empty .Values.oidc.audience) }}
{{- fail "oidc.issuer and oidc.audience belong together: give both or none" }}
{{- end }}
{{- with .Values.oidc.console }}
{{- if and .clientSecret.name (empty .clientId) }}
{{- fail "oidc.console.clientSecret requires oidc.console.clientId: the client of command lines has no secret" }}
{{- end }}
{{- if and .clientSecret.name (eq .exchange "browser") }}
{{- fail "oidc.console.clientSecret requires that the façade exchanges the code: leave oidc.console.exchange empty" }}
{{- end }}
{{- end }}
{{- if and (not .Values.logs.bucket) (or (gt (int .Values.facade.replicas) 1) .Values.facade.autoscaling.enabled) }}
{{- fail "several façades need logs.bucket: a volume has the logs of one of them only" }}
{{- end }}
{{- if and (.Values.vms | default dict).trustCaCertificates (not (include "berth.caFile" .)) }}
{{- fail "vms.trustCaCertificates needs caCertificates.configMap: the authorities that VMs trust" }}
{{- end }}
{{- if and .Values.logs.bucket .Values.logs.persistence.existingClaim }}
{{- fail "logs.persistence.existingClaim is not used with logs.bucket: leave one of them empty" }}
{{- end }}
{{- if and .Values.logs.persistence.existingClaim (not .Values.logs.persistence.enabled) }}
{{- fail "logs.persistence.existingClaim is not used with logs.persistence.enabled: false" }}
{{- end }}
{{- with .Values.facade.autoscaling }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "facade.autoscaling.minReplicas is %d, more than maxReplicas (%d)" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- end }}
{{- if and .Values.httpRoute.enabled (empty .Values.httpRoute.parentRefs) }}
{{- fail "httpRoute.parentRefs is needed: the Gateway that the route is attached to" }}
{{- end }}
{{- if and .Values.ingress.tls.certManager.enabled (empty .Values.ingress.tls.certManager.issuerRef.name) }}
{{- fail "ingress.tls.certManager.issuerRef.name is needed: who issues the certificate" }}
{{- end }}
{{- if eq (int .Values.metrics.port) 8080 }}
{{- fail "metrics.port is 8080, where the façade serves REST: take another one" }}
{{- end }}
{{- if and (not .Values.metrics.enabled) (or .Values.metrics.serviceMonitor.enabled .Values.metrics.prometheusRule.enabled) }}
{{- fail "metrics.enabled is needed for a ServiceMonitor or PrometheusRule" }}
{{- end }}
{{- end }}
