{{/* labels of a part that never change: selectors are immutable, and so are claims for volumes */}}
{{- define "farlog.selector" -}}
app.kubernetes.io/name: farlog
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "farlog.labels" -}}
{{ include "farlog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* of a pod: nobody's user, to whose group the volumes belong */}}
{{- define "farlog.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* of a container; .own are the values of its part */}}
{{- define "farlog.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .own.resources | nindent 2 }}
{{- end }}

{{- define "farlog.env" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "farlog.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata: {name: {{ .name }}}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .storage.className }}
    storageClassName: {{ . | quote }}
    {{- end }}
    resources: {requests: {storage: {{ .storage.size | quote }}}}
{{- end }}
