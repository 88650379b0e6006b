{{/* A PersistentVolumeClaim: dict root, what, values */}}
{{- define "gatehouse.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "gatehouse.fullname" .root }}-{{ .what }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gatehouse.labels" (dict "root" .root "component" "gateway") | nindent 4 }}
  {{- if .values.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
spec:
  accessModes:
    {{- toYaml .values.accessModes | nindent 4 }}
  {{- with .values.storageClass }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .values.size }}
{{- end -}}
