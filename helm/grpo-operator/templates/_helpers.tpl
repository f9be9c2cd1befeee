{{- define "grpo-operator.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 50 characters, so that every suffix fits. */}}
{{- define "grpo-operator.fullname" -}}
{{- $name := include "grpo-operator.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{ .Values.fullnameOverride | default $full | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "grpo-operator.serviceAccountName" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name: empty while serviceAccount.create is false; name the ServiceAccount to use" -}}
{{- end -}}
{{ .Values.serviceAccount.name | default (include "grpo-operator.fullname" .) }}
{{- end }}

{{- define "grpo-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "grpo-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "grpo-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "grpo-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The full name of an image. Takes a list of the image's values and the root. */}}
{{- define "grpo-operator.image" -}}
{{- $image := index . 0 -}}
{{- $root := index . 1 -}}
{{- $registry := ($root.Values.global).imageRegistry -}}
{{- $repository := empty $registry | ternary $image.repository (printf "%s/%s" $registry $image.repository) -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Variables that the operator and the self-test share. */}}
{{- define "grpo-operator.jobEnv" -}}
- name: GRPO_TRAINER_IMAGE
  value: {{ include "grpo-operator.image" (list .Values.jobImages.trainer .) | quote }}
- name: GRPO_VLLM_IMAGE
  value: {{ include "grpo-operator.image" (list .Values.jobImages.vllm .) | quote }}
- name: GRPO_RAY_VERSION
  value: {{ .Values.jobImages.rayVersion | quote }}
- name: GRPO_JOB_DEFAULTS
  value: {{ include "grpo-operator.jobDefaults" . | quote }}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{/* The defaults for the pods of jobs, in the format of GRPO_JOB_DEFAULTS. */}}
{{- define "grpo-operator.jobDefaults" -}}
{{- $defaults := dict -}}
{{- range $key, $value := .Values.jobDefaults | default dict -}}
{{- if $value -}}
{{- $_ := set $defaults $key $value -}}
{{- end -}}
{{- end -}}
{{ $defaults | toJson }}
{{- end }}

{{/* The peers that may connect to a job's pods, in the format of GRPO_NETWORK_POLICY. */}}
{{- define "grpo-operator.networkAccess" -}}
{{- $namespace := dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace) -}}
{{- $pods := dict "matchLabels" (include "grpo-operator.selectorLabels" . | fromYaml) -}}
{{- $operator := dict "namespaceSelector" $namespace "podSelector" $pods -}}
{{ dict "operator" (list $operator) "monitoring" .Values.networkPolicy.monitoring | toJson }}
{{- end }}
