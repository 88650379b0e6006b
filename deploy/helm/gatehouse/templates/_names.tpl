{{- define "gatehouse.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gatehouse.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "gatehouse.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gatehouse.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What never changes, because selectors cannot: dict root, component. */}}
{{- define "gatehouse.selector" -}}
app.kubernetes.io/name: {{ include "gatehouse.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object, each key once: dict root, component, and more labels as `extra`. */}}
{{- define "gatehouse.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (.root.Chart.AppVersion | quote | trimAll "\"")
  "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/part-of" "gatehouse" -}}
{{- $selector := include "gatehouse.selector" . | fromYaml -}}
{{- toYaml (merge $selector $own (default dict .extra) .root.Values.commonLabels) -}}
{{- end -}}

{{/* dict root, image */}}
{{- define "gatehouse.image" -}}
{{- $registry := default .root.Values.global.imageRegistry .image.registry -}}
{{- $name := .image.repository -}}
{{- if $registry }}{{ $name = printf "%s/%s" (trimSuffix "/" $registry) $name }}{{ end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "gatehouse.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gatehouse.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* "true" where several pods may run at a time. */}}
{{- define "gatehouse.many" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) -}}true{{- end -}}
{{- end -}}

{{/* "true" where the data are SQLite in a claim. */}}
{{- define "gatehouse.claims" -}}
{{- if and .Values.persistence.enabled (not .Values.database.existingSecret) -}}true{{- end -}}
{{- end -}}

{{- define "gatehouse.sleeps" -}}
{{- if and (gt (int .Values.drain.preStopSeconds) 0) (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}true{{- end -}}
{{- end -}}

{{- define "gatehouse.inside" -}}
{{- $port := ternary "" (printf ":%v" .Values.service.port) (eq (int .Values.service.port) 80) -}}
{{- printf "http://%s.%s.svc%s" (include "gatehouse.fullname" .) .Release.Namespace $port -}}
{{- end -}}

{{- define "gatehouse.publicUrl" -}}
{{- if .Values.publicUrl -}}
{{- trimSuffix "/" .Values.publicUrl -}}
{{- else if and .Values.ingress.enabled .Values.ingress.hosts -}}
{{- printf "%s://%s" (ternary "https" "http" (not (empty .Values.ingress.tls))) (first .Values.ingress.hosts) -}}
{{- else if and .Values.httpRoute.enabled .Values.httpRoute.hostnames -}}
{{- printf "https://%s" (first .Values.httpRoute.hostnames) -}}
{{- else -}}
{{- include "gatehouse.inside" . -}}
{{- end -}}
{{- end -}}

{{/* Where operators come to; empty: only from within the cluster. */}}
{{- define "gatehouse.opsPublicUrl" -}}
{{- if .Values.opsPublicUrl -}}
{{- trimSuffix "/" .Values.opsPublicUrl -}}
{{- else if .Values.opsIngress.enabled -}}
{{- printf "%s://%s" (ternary "https" "http" (not (empty .Values.opsIngress.tls))) .Values.opsIngress.host -}}
{{- end -}}
{{- end -}}

{{- define "gatehouse.secretCommand" -}}
for name in pepper seal signing; do head -c 32 /dev/urandom > $name; done
  kubectl -n {{ .Release.Namespace }} create secret generic {{ include "gatehouse.fullname" . }}-secrets --from-file=pepper --from-file=seal --from-file=signing
  rm pepper seal signing
{{- end -}}

{{/* Refuses what could not work, with the mend. */}}
{{- define "gatehouse.checks" -}}
{{- $bus := or .Values.redis.existingSecret .Values.redis.url -}}
{{- if and (include "gatehouse.many" .) (not .Values.database.existingSecret) -}}
{{- fail "several pods share one database: set database.existingSecret to a Secret with the address of a PostgreSQL, or replicaCount to 1" -}}
{{- end -}}
{{- if and (include "gatehouse.many" .) (not $bus) -}}
{{- fail "several pods need a bus: set redis.existingSecret (or redis.url) to a Redis or Valkey, or replicaCount to 1" -}}
{{- end -}}
{{- if and .Values.database.existingSecret (not .Values.secrets.existingSecret) -}}
{{- fail (printf "beside PostgreSQL every pod needs the same secrets: make them once, and set secrets.existingSecret to %s-secrets:\n  %s\n" (include "gatehouse.fullname" .) (include "gatehouse.secretCommand" .)) -}}
{{- end -}}
{{- if and .Values.redis.existingSecret .Values.redis.url -}}
{{- fail "give redis.existingSecret or redis.url, not both" -}}
{{- end -}}
{{- if and .Values.files.enabled (not .Values.database.existingSecret) -}}
{{- fail "files.enabled is for several pods beside PostgreSQL: SQLite does not belong on a shared volume, and one pod has room in its own" -}}
{{- end -}}
{{- if and $bus (not .Values.files.enabled) (not .Values.config.backends) (not .Values.existingConfig.configMap) (not .Values.existingConfig.secret) -}}
{{- fail "the backends that are served by default include launch, which works on files that every pod must see: name those you want in config.backends, or set files.enabled" -}}
{{- end -}}
{{- if and .Values.existingConfig.configMap .Values.existingConfig.secret -}}
{{- fail "give existingConfig.configMap or existingConfig.secret, not both" -}}
{{- end -}}
{{- if and .Values.config (or .Values.existingConfig.configMap .Values.existingConfig.secret) -}}
{{- fail "give config or existingConfig, not both" -}}
{{- end -}}
{{- if gt (len (compact (list .Values.policies.configMap .Values.policies.secret (ternary "files" "" (not (empty .Values.policies.files)))))) 1 -}}
{{- fail "give one of policies.files, policies.configMap and policies.secret" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled needs ingress.hosts" -}}
{{- end -}}
{{- if and .Values.opsIngress.enabled (not .Values.opsIngress.host) -}}
{{- fail "opsIngress.enabled needs opsIngress.host" -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and .enabled .keda.enabled .callsInFlight (not .keda.prometheus) -}}
{{- fail "autoscaling.callsInFlight needs autoscaling.keda.prometheus: where KEDA reads how many there are" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.enabled needs httpRoute.parentRefs: the Gateway it belongs to" -}}
{{- end -}}
{{- end -}}
