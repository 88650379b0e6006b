{{/* What every pod of the gateway's own image shares. */}}
{{- define "gatehouse.podBase" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The image, and how it may run. */}}
{{- define "gatehouse.containerBase" -}}
image: {{ include "gatehouse.image" (dict "root" . "image" .Values.image) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{/* The environment of the gateway and of everything that works on its database: the chart's word over the file's. */}}
{{- define "gatehouse.env" -}}
{{- $name := include "gatehouse.fullname" . -}}
{{- $inside := printf "%s.%s" $name .Release.Namespace -}}
{{- $hosts := list -}}
{{- range list $name $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) -}}
{{- $hosts = append $hosts (printf "%s:*" .) -}}
{{- end -}}
{{- $grace := int .Values.drain.graceSeconds -}}
{{- if not (include "gatehouse.sleeps" .) }}{{ $grace = add $grace (int .Values.drain.preStopSeconds) }}{{ end -}}
- name: GATEHOUSE_CONFIG
  value: /etc/gatehouse/gatehouse.yaml
- name: GATEHOUSE__SERVER__HOST
  value: {{ .Values.listenAddress | quote }}
- name: GATEHOUSE__SERVER__PORT
  value: "8080"
- name: GATEHOUSE__SERVER__OPS_PORT
  value: "9090"
- name: GATEHOUSE__SERVER__PUBLIC_URL
  value: {{ include "gatehouse.publicUrl" . | quote }}
{{- with include "gatehouse.opsPublicUrl" . }}
- name: GATEHOUSE__SERVER__OPS_PUBLIC_URL
  value: {{ . | quote }}
{{- end }}
- name: GATEHOUSE__SERVER__ALLOWED_HOSTS
  value: {{ concat $hosts .Values.allowedHosts | toJson | quote }}
- name: GATEHOUSE__SERVER__DRAIN_GRACE
  value: {{ $grace | quote }}
- name: GATEHOUSE__SERVER__DRAIN_SECONDS
  value: {{ .Values.drain.callSeconds | quote }}
- name: GATEHOUSE__DATA_DIR
  value: /var/lib/gatehouse
{{- if .Values.files.enabled }}
- name: GATEHOUSE__FILES_DIR
  value: /var/lib/gatehouse-files
- name: GATEHOUSE__FILES_SHARED
  value: "true"
{{- end }}
{{- if .Values.database.existingSecret }}
- name: GATEHOUSE__DATABASE__URL_FILE
  value: /etc/gatehouse-secrets/database/url
{{- end }}
{{- if .Values.redis.existingSecret }}
- name: GATEHOUSE__BUS__URL_FILE
  value: /etc/gatehouse-secrets/redis/url
{{- else if .Values.redis.url }}
- name: GATEHOUSE__BUS__URL
  value: {{ .Values.redis.url | quote }}
{{- end }}
{{- if include "gatehouse.hasPolicies" . }}
- name: GATEHOUSE__POLICIES__DIR
  value: /etc/gatehouse-policies
{{- end }}
{{- if .Values.collector.enabled }}
- name: GATEHOUSE__TELEMETRY__OTLP__URL
  value: http://{{ $name }}-collector:4318
{{- end }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.namespace.name={{ .Release.Namespace }},k8s.pod.name=$(POD_NAME),k8s.node.name=$(NODE_NAME)
- name: HOME
  value: /tmp
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gatehouse.envFrom" -}}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gatehouse.hasPolicies" -}}
{{- if or .Values.policies.files .Values.policies.configMap .Values.policies.secret -}}true{{- end -}}
{{- end -}}

{{/* Settings and secrets: what a Job needs too. dict root, config: the name of the ConfigMap that the chart makes. */}}
{{- define "gatehouse.settingsVolumes" -}}
{{- $values := .root.Values -}}
- name: config
  {{- if $values.existingConfig.secret }}
  secret:
    secretName: {{ $values.existingConfig.secret }}
    items: [{key: {{ $values.existingConfig.key | quote }}, path: gatehouse.yaml}]
  {{- else if $values.existingConfig.configMap }}
  configMap:
    name: {{ $values.existingConfig.configMap }}
    items: [{key: {{ $values.existingConfig.key | quote }}, path: gatehouse.yaml}]
  {{- else }}
  configMap:
    name: {{ .config }}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- with $values.secrets.existingSecret }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0400
{{- end }}
{{- with $values.database }}
{{- if .existingSecret }}
- name: database
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0400
    items: [{key: {{ .key | quote }}, path: url}]
{{- end }}
{{- end }}
{{- with $values.redis }}
{{- if .existingSecret }}
- name: redis
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0400
    items: [{key: {{ .key | quote }}, path: url}]
{{- end }}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gatehouse.settingsMounts" -}}
- name: config
  mountPath: /etc/gatehouse
  readOnly: true
- name: tmp
  mountPath: /tmp
- name: data
  mountPath: /var/lib/gatehouse
{{- if .Values.secrets.existingSecret }}
- name: secrets
  mountPath: /var/lib/gatehouse/secrets
  readOnly: true
{{- end }}
{{- if .Values.database.existingSecret }}
- name: database
  mountPath: /etc/gatehouse-secrets/database
  readOnly: true
{{- end }}
{{- if .Values.redis.existingSecret }}
- name: redis
  mountPath: /etc/gatehouse-secrets/redis
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The policies that ship with those of the values over them, by path. */}}
{{- define "gatehouse.policyFiles" -}}
{{- $files := dict -}}
{{- range $path, $bytes := .Files.Glob "files/policies/**" -}}
{{- $_ := set $files (trimPrefix "files/policies/" $path) (toString $bytes) -}}
{{- end -}}
{{- range $path, $text := .Values.policies.files -}}
{{- if $text -}}{{- $_ := set $files $path $text -}}{{- else -}}{{- $_ := unset $files $path -}}{{- end -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}
