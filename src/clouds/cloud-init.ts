import { isIPv4, isIPv6 } from "node:net"
import { dump } from "js-yaml"
import type { Launch } from "../core/apis/launch.ts"
import { nvidiaGpusOf } from "../core/apis/offer.ts"
import { type VmProxy, withoutProxy } from "../core/apis/vm-proxy.ts"
import { bootConfig, renderUserData } from "../core/protocol/messages.ts"
import { type BootConfig, CONSOLE_MARK, CONSOLE_OK, GATEWAY_PATH } from "../core/protocol/protocol.ts"
import { vmLifetimeOf } from "../core/reuse/reuse.ts"
import type { VmSystem } from "./definition.ts"
import { DEFINITIONS, VM_CLOUDS, vmsOf } from "./definitions.ts"

/** Maximum user data of EC2, bytes before base64. GCP and Azure accept more. */
export const USER_DATA_LIMIT_BYTES = 16 * 1024

/** Folder on the VM for the agent's files and the deadline of the VM's lifetime. */
export const STATE_DIR = "/var/lib/berth"

/** Folder of the agent's own data, in its container under the same path. */
export const AGENT_DATA_DIR = `${STATE_DIR}/agent`

/** Units that upgrade Ubuntu. An upgrade at night restarts the engine, and with it the container. */
const UBUNTU_UPGRADES = ["apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service"]

interface SystemParts {
  /** Packages that install an engine if the image has none. */
  packages: string[]
  masked: string[]
  /** Stages of cloud-init after which the agent's unit starts. */
  after: string[]
}

/** Stage of cloud-init that writes the files of the user data, by its name before and since cloud-init 24.3. */
const FILES_WRITTEN = ["cloud-init.service", "cloud-init-network.service"]

/**
 * Differences between the systems. Azure's Ubuntu for GPUs has an engine. Google's has NVIDIA's driver and toolkit only.
 * Container-Optimized OS can't replace it: its engine gives no GPU to a container that requests one through Docker's API
 * (https://cloud.google.com/container-optimized-os/docs/how-to/run-gpus).
 */
const SYSTEMS: Record<VmSystem, SystemParts> = {
  // ECS' own agent would look for a cluster forever.
  ecs: { packages: [], masked: ["ecs.service"], after: FILES_WRITTEN },
  ubuntu: {
    // The engine unpacks layers by pigz, which is only a recommended package.
    packages: ["docker.io", "iptables", "pigz"],
    masked: UBUNTU_UPGRADES,
    // This stage names the cloud's own mirror to apt.
    after: [...FILES_WRITTEN, "cloud-config.service"],
  },
  cos: { packages: [], masked: ["update-engine.service"], after: FILES_WRITTEN },
}

const SERVICE_ADDRESSES = VM_CLOUDS.flatMap((cloud): readonly string[] => DEFINITIONS[cloud].vms.serviceAddresses)

/**
 * Addresses where clouds serve a VM's metadata, and with it the VM's own credentials. They are the link-local range
 * (169.254.169.254 everywhere; 169.254.170.2 and .23 for AWS' containers) and those of the definitions.
 */
const METADATA_ADDRESSES = ["169.254.0.0/16", ...SERVICE_ADDRESSES.filter(isIPv4).map((address) => `${address}/32`)]
const METADATA_ADDRESSES_V6 = SERVICE_ADDRESSES.filter(isIPv6)

/**
 * Port that stays open: some of these addresses are the VM's name server as well (169.254.169.254 on GCP, 168.63.129.16
 * on Azure).
 */
const DNS_PORT = 53

/**
 * Part of the boot deadline in which the VM's system boots and the VM reports a failure, seconds. All waits of the script
 * end before. A report takes at most 47 s: four tries of 10 s and the delays between them.
 */
const BOOT_RESERVE_SECONDS = 60

/** Time that the engine has to answer, seconds. */
const READY_SECONDS = 30

/**
 * Time that the GPUs have, seconds. Without persistence mode each call of nvidia-smi initializes all cards again. That
 * takes more than 20 s for eight cards (https://github.com/Azure/aks-gpu/issues/105).
 */
const GPU_SECONDS = 120

/** Time for pulls of the agent's image, seconds. */
const PULL_SECONDS = 240

/**
 * Time that a VM still tries to reach the gateway after it has written on its console that it can't, seconds. It is longer
 * than a restart of the gateway. Then the VM powers off.
 */
const GATEWAY_SECONDS = 270

/** Time for all downloads of an engine by apt, seconds. */
const APT_SECONDS = 120

/** Time for the downloads from the first mirror, seconds. */
const FIRST_MIRROR_SECONDS = 75

/** Silence of a mirror after which apt gives up a download, seconds. */
const APT_SILENCE_SECONDS = 10

/** Time to unpack and start the engine, seconds. */
const UNPACK_SECONDS = 90

/** Time that systemd waits for the agent's end, seconds. The agent uploads written files in it. */
const AGENT_STOP_SECONDS = 90

/** Delay after the order to shut down until the power is cut, even if something still hangs, seconds. */
const HARD_OFF_SECONDS = 120

/**
 * Script that deletes the VM, in `STATE_DIR`, of clouds that bill a stopped VM (clouds/azure/user-data.ts). It repeats its
 * request until the cloud accepts it.
 */
const DELETE_SCRIPT = "delete-vm.sh"

/**
 * Time in which the VM requests its deletion before it powers off, seconds. A new role assignment may take 30 minutes
 * (https://learn.microsoft.com/azure/role-based-access-control/troubleshooting).
 */
const DELETE_SECONDS = 2700

/** `HARD_OFF_SECONDS` of such a VM: it repeats the request during its shutdown. */
const DELETED_HARD_OFF_SECONDS = 1800

/**
 * Image reference by the grammar of the distribution project. It has no character that is special to a shell or
 * systemd.
 */
const IMAGE = /^[A-Za-z0-9][-A-Za-z0-9._/:@]{0,511}$/

/**
 * Returns the user data of a Launch's VM on its cloud: cloud-init, or on the local cloud only the config. Pure.
 * @throws TypeError if the Launch has no agent image and its cloud needs one; errors of `renderCloudInit`
 */
export function buildUserData(launch: Pick<Launch, "metadata" | "spec">, bootstrapKey: Uint8Array): string {
  const { offer, agentImage, bootDeadlineSeconds, proxy, run } = launch.spec
  const config = bootConfig(launch, bootstrapKey)
  const gpus = nvidiaGpusOf(offer)?.count
  const system = vmsOf(offer.cloud)?.systems[gpus === undefined ? "cpu" : "gpu"]
  if (system === undefined) return renderUserData(config)
  if (agentImage === undefined) {
    throw new TypeError("no image for the agent: set --agent-image (BERTH_AGENT_IMAGE) of the operator")
  }
  const options = {
    system,
    agentImage,
    bootDeadlineSeconds,
    jobImage: run.image,
    vmLifetimeSeconds: vmLifetimeOf(launch.spec),
  }
  return renderCloudInit(config, { ...options, ...(gpus !== undefined && { gpus }), ...(proxy && { proxy }) })
}

export interface CloudInitOptions {
  system: VmSystem
  /** Image with the agent (target `agent` of the Dockerfile). */
  agentImage: string
  /** Seconds after the VM's creation at which Berth ends a VM without an agent. The VM reports a failure before. */
  bootDeadlineSeconds: number
  /** Seconds after its first boot at which the VM ends, whichever job it has then. Absent: the job's own. */
  vmLifetimeSeconds?: number
  /** Number of GPUs without which the VM is useless, or the fraction of one. Absent: none. */
  gpus?: number
  /** Proxy of the VM's own programs: its engine, apt, curl, the agent and rclone. Absent: none. */
  proxy?: VmProxy
  /** Image that the VM pulls without credentials while the agent starts. Absent, or a failed pull: the agent pulls it. */
  jobImage?: string
}

/**
 * Renders user data for cloud-init, as `#cloud-config`. Pure: equal configs give equal bytes. The VM ends
 * `vmLifetimeSeconds` after its first boot, even after failures on it. Containers can't reach the metadata service. The
 * agent runs as a service, and the VM powers off when the agent ends. If the engine or a required GPU is missing, the
 * VM reports that to the gateway and powers off. Without a way to the gateway, it reports on its console.
 * @throws TypeError if the agent's image reference is not valid
 * @throws RangeError if the user data is too long for EC2
 */
export function renderCloudInit(config: BootConfig, options: CloudInitOptions): string {
  const { system, agentImage, vmLifetimeSeconds = config.lifetimeSeconds } = options
  if (!IMAGE.test(agentImage)) {
    throw new TypeError(
      `agentImage ${JSON.stringify(agentImage)} is not an image reference, such as registry/berth:1.0`,
    )
  }
  const { masked, after } = SYSTEMS[system]
  const secret = (path: string, content: string) => ({ path, permissions: "0600", content })
  const document = {
    // First, and at every boot: this VM must end even if a later step fails. `runcmd` would run in cloud-init's last stage,
    // after all services have started. The agent's unit is started here, and waits only for what it needs.
    bootcmd: [
      ["/bin/sh", "-c", armScript(vmLifetimeSeconds, after, engineSettings(config, options))],
      ["systemctl", "mask", "--now", "--no-block", ...masked],
      ["systemctl", "start", "--no-block", AGENT_UNIT],
    ],
    write_files: [
      secret(`${AGENT_DATA_DIR}/user-data.json`, renderUserData(config)),
      secret(`${STATE_DIR}/${REPORT_FILE}`, reportRequest(config)),
      ...(config.gatewayCa === undefined ? [] : [{ path: `${STATE_DIR}/${CA_SCRIPT}`, content: CA_SCRIPT_TEXT }]),
      { path: `${STATE_DIR}/${START_SCRIPT}`, content: startScript(config, options) },
    ],
  }
  const text = `#cloud-config\n${dump(document, { lineWidth: -1, noRefs: true, indent: 1 })}`
  const bytes = Buffer.byteLength(text)
  if (bytes <= USER_DATA_LIMIT_BYTES) return text
  throw new RangeError(
    `user data has ${bytes} bytes, and EC2 takes ${USER_DATA_LIMIT_BYTES}: ` +
      `gatewayCa has ${config.gatewayCa?.length ?? 0} of them; give only the CA's own certificate`,
  )
}

const AGENT_UNIT = "berth-agent.service"

/**
 * Ends the VM. A VM that is billed while it is stopped first requests its deletion. Within the shutdown it has less time:
 * systemd cuts a shutdown after 30 minutes (JobTimeoutSec of poweroff.target).
 */
const END_FUNCTION = `end_vm() {
  [ ! -x ${STATE_DIR}/${DELETE_SCRIPT} ] || timeout ${DELETE_SECONDS} ${STATE_DIR}/${DELETE_SCRIPT}
  systemctl poweroff --no-block
}`

/**
 * Returns a script that arms the dead-man switch: a systemd timer, independent of the agent and of Docker. The deadline
 * is stored, so that a reboot doesn't begin a new lifetime. The units, also the agent's, are created again at each boot. A
 * VM that can't arm the switch ends at once.
 */
function armScript(vmLifetimeSeconds: number, after: readonly string[], { environment, drop }: EngineSettings): string {
  return `${END_FUNCTION}
arm() (
  set -eu
  mkdir -p ${STATE_DIR} /run/systemd/system
  cd ${STATE_DIR}
  now=$(date +%s)
  if [ ! -s deadline ]; then
    echo $((now + ${vmLifetimeSeconds})) > deadline.new
    sync
    mv deadline.new deadline
  fi
  left=$(($(cat deadline) - now))
  [ $left -gt 0 ] || left=0
  first="" off=${HARD_OFF_SECONDS}
  if [ -x ${DELETE_SCRIPT} ]; then
    first="timeout ${AGENT_STOP_SECONDS} systemctl stop ${AGENT_UNIT}; timeout ${DELETE_SECONDS} $PWD/${DELETE_SCRIPT};" off=${DELETED_HARD_OFF_SECONDS}
  fi
  cat > /run/systemd/system/berth-dead-man.service <<END
[Unit]
DefaultDependencies=no
[Service]
${environment}Type=oneshot
ExecStart=/bin/sh -c '$first shutdown -P now || systemctl poweroff --no-block; sleep $off; systemctl poweroff --force --force'
END
  cat > /run/systemd/system/berth-dead-man.timer <<END
[Unit]
DefaultDependencies=no
[Timer]
OnActiveSec=$left
AccuracySec=1s
END
  cat > /run/systemd/system/${AGENT_UNIT} <<END
${agentUnit(after)}END
${drop}  systemctl daemon-reload
  systemctl start --no-block berth-dead-man.timer
)
arm || end_vm
`
}

/** Parts of the script that arms the VM, for a proxy and for authorities. Each is empty without them. */
interface EngineSettings {
  /** Line of a unit with the proxy. */
  environment: string
  /** Commands that give the engine its environment, before its first start. */
  drop: string
}

/** Authorities in these folders are trusted by Docker's engine and by rclone, like those of the system (Go, crypto/x509). */
const SYSTEM_CERTIFICATES = "/etc/ssl/certs:/etc/pki/tls/certs"

function engineSettings({ gatewayCa }: BootConfig, { proxy }: CloudInitOptions): EngineSettings {
  const variables = proxy === undefined ? [] : variablesOf(proxy)
  const line = (all: readonly string[]) => `Environment=${all.map((one) => `"${one}"`).join(" ")}\n`
  const environment = variables.length === 0 ? "" : line(variables)
  if (gatewayCa === undefined && proxy === undefined) return { environment, drop: "" }
  const trust = gatewayCa === undefined ? [] : [`SSL_CERT_DIR=${SYSTEM_CERTIFICATES}:${STATE_DIR}/${CA_FOLDER}`]
  const before = gatewayCa === undefined ? "" : `ExecStartPre=-/bin/sh ${STATE_DIR}/${CA_SCRIPT}\n`
  const folder = "/run/systemd/system/docker.service.d"
  const drop = `  mkdir -p ${folder}
  cat > ${folder}/berth.conf <<END
[Service]
${line([...variables, ...trust])}${before}END
`
  return { environment, drop }
}

/** Returns the variables of a proxy in both cases: curl reads some only in lower case, and others only in upper case. */
function variablesOf({ url, noProxy }: VmProxy): string[] {
  const values = { http_proxy: url, https_proxy: url, no_proxy: withoutProxy(noProxy) }
  return Object.entries(values).flatMap(([name, value]) => [`${name}=${value}`, `${name.toUpperCase()}=${value}`])
}

/**
 * Returns the agent's unit. The agent exits with 0 only if its VM has nothing more to do. Otherwise systemd restarts the
 * agent, which continues its work. The unit doesn't require the engine's unit, which the script may have to install.
 */
function agentUnit(after: readonly string[]): string {
  return `[Unit]
Description=Berth's agent
Wants=network-online.target docker.service
After=${["network-online.target", "docker.service", ...after].join(" ")}
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh ${STATE_DIR}/${START_SCRIPT}
Restart=on-failure
RestartSec=5
TimeoutStopSec=${AGENT_STOP_SECONDS}
`
}

/** Node.js in Berth's image. */
const NODE = "/nodejs/bin/node"

/** Settings with which curl reports a boot failure. They keep the token out of a process's arguments. */
const REPORT_FILE = "report.curl"
const START_SCRIPT = "start.sh"
/** Public authorities and those of the user data, for curl. */
const CA_FILE = "ca.pem"
/** Folder with the authorities of the user data. */
const CA_FOLDER = "ca"
const CA_SCRIPT = "ca.sh"

function reportRequest({ launch, gatewayUrl, gatewayCa, bootstrapToken }: BootConfig): string {
  const settings = [
    ["url", `${gatewayUrl}${GATEWAY_PATH}/launches/${launch}/boot-failure`],
    ["header", `Authorization: Bearer ${bootstrapToken}`],
    ["header", "Content-Type: application/json"],
    ["data", "@-"],
    ...(gatewayCa === undefined ? [] : [["cacert", CA_FILE]]),
  ]
  return settings.map(([name, value]) => `${name} = ${JSON.stringify(value)}\n`).join("")
}

/**
 * Returns a script that runs the agent once the engine, the GPUs and the firewall are ready. If one is missing, the
 * script reports that to the gateway or on the console, and the billed but useless VM ends. If an agent has run on this
 * disk before, nothing was missing then, so the unit just tries again.
 */
function startScript({ gatewayCa }: BootConfig, options: CloudInitOptions): string {
  const { system, agentImage, jobImage, gpus, bootDeadlineSeconds, proxy } = options
  const { packages } = SYSTEMS[system]
  const lines = [
    failFunctions(bootDeadlineSeconds),
    ...(gpus === undefined ? [] : [PERSISTENCE]),
    ...(gpus !== undefined && gpus < 1 ? [OVERCOMMIT] : []),
    ...(proxy === undefined ? [] : [`export ${variablesOf(proxy).join(" ")}`]),
    ...(gatewayCa === undefined ? [] : [`sh ${CA_SCRIPT}`]),
    ...(packages.length === 0 ? [] : [GATEWAY_CHECK, installScript(packages, gpus !== undefined)]),
    "engine() { try docker version; }",
    `ready ${READY_SECONDS} engine || fail EngineUnavailable "no Docker engine answered"`,
    pullScript(agentImage, jobImage),
    // With an engine in the image, the pull need not wait for this.
    ...(packages.length === 0 ? [GATEWAY_CHECK] : []),
    ...(gpus === undefined ? [] : [gpuCheck(Math.ceil(gpus))]),
    firewallScript(),
    PULLED,
    runScript(proxy),
  ]
  return `${lines.join("\n")}\n`
}

/**
 * Returns the script's functions. `fail` reports a failure to the gateway, or else on the console, and ends the VM.
 * `ready` waits for a command to succeed, for some seconds, and no longer than the VM has to start. After exit code 127
 * there is no such program, and none will come. `try` runs a program for the rest of that time, but at least for 5 s. All
 * times count from the start of the system's first process (proc_pid_stat(5)), because the clock may be set meanwhile.
 */
function failFunctions(bootDeadlineSeconds: number): string {
  const most = Math.max(bootDeadlineSeconds - BOOT_RESERVE_SECONDS, Math.ceil(bootDeadlineSeconds / 2))
  return `cd ${STATE_DIR}
${END_FUNCTION}
explain() {
  why=$(echo "$why" | tail -n 1)
  failure=$(echo "$2$within: \${why:-no answer}" | tr -cd '[:alnum:] .,:;()/_-' | cut -c -600)
  failure=$(printf '{"reason":"%s","message":"%s"}' $1 "$failure")
}
console() { printf '\\n${CONSOLE_MARK} %s\\n' "$1" > /dev/console; }
fail() {
  echo "$1: $2: $why"
  [ ! -e agent/keys.json ] || exit 1
  explain $1 "$2"
  printf %s "$failure" | curl -sf -m 10 --retry 3 --retry-all-errors -K ${REPORT_FILE} || console "$failure"
  end_vm
  exit 0
}
boot=$(($(cut -d ' ' -f 22 /proc/1/stat) / 100))
age() { echo $(($(cut -d . -f 1 /proc/uptime) - boot)); }
ready() {
  end=$(($(age) + $1)) within=" in $1 s"
  [ $end -le ${most} ] || end=${most} within=" in the ${most} s that the VM has to start"
  shift
  until why=$("$@" 2>&1); do
    [ $? -ne 127 ] || { within=; return 1; }
    [ $(age) -lt $end ] || return 1
    sleep 1
  done
}
try() {
  left=$((end - $(age)))
  [ $left -gt 5 ] || left=5
  timeout $left "$@"
}`
}

/**
 * Extracts the PEM from the agent's own file, in which line ends are escaped. It is executed before the first start of the
 * engine, and again by the start script: an engine that apt installs starts later.
 */
const CA_SCRIPT_TEXT = `cd ${STATE_DIR} || exit
mkdir -p ${CA_FOLDER}
printf %b "$(sed -n 's/^  "gatewayCa": "\\(.*\\)",$/\\1/p' agent/user-data.json)" > ${CA_FOLDER}/own.pem
cat /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt ${CA_FOLDER}/own.pem > ${CA_FILE} 2> /dev/null || :
`

/**
 * Looks for a way to the gateway by a GET without a body: any answer of a server whose certificate is right will do.
 * Without a way, this VM can only use its console. A VM whose agent has run had a way, and its agent decides then.
 */
const GATEWAY_CHECK = `reach() { curl -sSm 10 -X GET -o /dev/null -K ${REPORT_FILE} < /dev/null; }
if [ ! -e agent/keys.json ] && command -v curl > /dev/null && ! ready ${READY_SECONDS} reach; then
  set -- GatewayUnreachable "the VM found no way to the gateway"
  explain "$@"
  console "$failure"
  ready ${GATEWAY_SECONDS} reach || fail "$@"
  console ${CONSOLE_OK}
fi`

/**
 * Returns a script that installs an engine from Ubuntu's packages. For GPUs it configures NVIDIA's runtime in it, before
 * the engine's first start
 * (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html). A cloud's mirror may
 * stall for 20 minutes without an error (https://github.com/actions/runner-images/issues/14594). So each download has
 * limits, and after a failure the rest comes from Ubuntu's own mirror. The limits cut no installation.
 */
function installScript(packages: readonly string[], gpu: boolean): string {
  const install = `apt-get -qy install --no-install-recommends ${packages.join(" ")}`
  return `if ! command -v docker > /dev/null; then
  export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
  cat > /etc/apt/apt.conf.d/99berth <<END
Acquire { Retries "0"; http::Timeout "${APT_SILENCE_SECONDS}"; https::Timeout "${APT_SILENCE_SECONDS}"; };
DPkg { Lock::Timeout "${UNPACK_SECONDS}"; Options { "--force-unsafe-io"; }; };
END
  fetch() {
    try timeout ${FIRST_MIRROR_SECONDS} sh -c "apt-get -q update; ${install} --download-only" >> apt.log 2>&1 && return
    sed -Ei 's,//[a-z0-9.-]+\\.(archive|ports)\\.ubuntu,//\\1.ubuntu,' /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2> /dev/null
    grep 'Failed to fetch' apt.log | tail -n 1 | grep . || tail -n 1 apt.log
    return 1
  }
  unpack() { try ${install}; }
${gpu ? "  nvidia-ctk runtime configure --runtime=docker\n" : ""}  ready ${APT_SECONDS} fetch || fail EngineUnavailable "apt downloaded no Docker engine"
  ready ${UNPACK_SECONDS} unpack || fail EngineUnavailable "apt installed no Docker engine"
fi`
}

/**
 * Keeps the GPUs initialized (https://docs.nvidia.com/deploy/driver-persistence/index.html). It may take a minute, so it
 * starts before all else.
 */
const PERSISTENCE = `timeout ${GPU_SECONDS} nvidia-smi -pm 1 > /dev/null 2>&1 &`

/**
 * Lets NVIDIA's runtime reserve more memory than the smallest machines have
 * (https://github.com/aws/amazon-ecs-ami#memory-overcommit-fix-for-g6flarge-instance-type).
 */
const OVERCOMMIT = "sysctl -qw vm.overcommit_memory=1"

/**
 * Returns a script that checks for all GPUs. NVIDIA's tool exits with 0 also if it finds none. GPUs on NVSwitches need the
 * fabric manager: without it nvidia-smi works, and CUDA fails. From the H100 on each GPU shows the state of its fabric, or
 * N/A without NVSwitches. For an A100 the manager's service must run
 * (https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html#initializing-nvswitch-and-nvlink).
 */
function gpuCheck(count: number): string {
  const [gpus, were] = count === 1 ? ["GPU", "was"] : ["GPUs", "were"]
  const fabric = `
  fabric=$(try nvidia-smi -q | sed -n '/^ *Fabric$/,/Status/s/^ *Stat[a-z]* *: //p' | sort -u | grep -vxE 'Completed|Success|N/A')
  [ -z "$fabric" ] || { echo "the fabric of the GPUs is" $fabric; return 1; }
  if ls /proc/driver/nvidia-nvswitch/devices/* > /dev/null 2>&1; then
    state=$(systemctl is-active nvidia-fabricmanager) || { echo "nvidia-fabricmanager is $state"; return 1; }
  fi`
  return `gpus() {
  list=$(try nvidia-smi -L 2>&1) || [ $? -ne 127 ] || { echo "$list"; return 127; }
  shown=$(echo "$list" | grep -c '^GPU [0-9]*:')
  said=$(echo "$list" | grep -v '^GPU [0-9]*:' | tail -n 1)
  [ $shown -ge ${count} ] || { echo "nvidia-smi showed $shown of ${count} ${gpus}\${said:+: $said}"; return 1; }${count > 1 ? fabric : ""}
}
ready ${GPU_SECONDS} gpus || fail GPUUnavailable "the ${gpus} ${were} not ready"`
}

/**
 * Returns a script that sets the firewall's rules. Docker keeps the rules of its chain DOCKER-USER, and applies them
 * first to all packets of containers. Each rule is inserted before the last one. For IPv6 not every engine has that
 * chain. A system without ip6tables or IPv6 gives containers no IPv6 either.
 */
function firewallScript(): string {
  return `within=
iptables -w -N DOCKER-USER 2> /dev/null
rule() {
  $ip -w -C $chain "$@" 2> /dev/null || why=$($ip -w -I $chain "$@" 2>&1) ||
    fail FirewallUnavailable "$ip keeps no container from the metadata service"
}
ip=iptables chain=DOCKER-USER
for address in ${METADATA_ADDRESSES.join(" ")}; do
  rule -d $address -j REJECT
  for p in udp tcp; do rule -d $address -p $p --dport ${DNS_PORT} -j RETURN; done
done
ip=ip6tables chain=FORWARD
${METADATA_ADDRESSES_V6.map((address) => `$ip -w -nL > /dev/null 2>&1 && rule -d ${address} -j REJECT`).join("\n")}`
}

/**
 * Returns a script that pulls the agent's image and the job's beside the checks. The job's begins once the layers of the
 * agent's are in the engine's queue: it downloads three layers at once, and large ones would delay the agent's. The agent's
 * own pull of the job's image joins the downloads. A reference that a shell could interpret is left to the agent.
 */
function pullScript(agentImage: string, jobImage: string | undefined): string {
  const ahead = `
{
  until grep -s 'Pulling fs layer' ${PULL_LOG} || ! kill -0 $puller; do sleep 0.2; done
  [ -e agent/keys.json ] || docker image inspect ${jobImage} || docker pull -q ${jobImage}
} > /dev/null 2>&1 &`
  return `image=${agentImage}
pull() {
  docker image inspect -f . $image 2> /dev/null && return
  try docker pull $image > ${PULL_LOG} 2>&1 && return
  cat ${PULL_LOG}
  case $(cat ${PULL_LOG}) in *'no space left'*|*'no matching manifest'*|*'manifest unknown'*) return 127 ;; esac
  return 1
}
{
  ready ${PULL_SECONDS} pull || { echo "$within"; echo "$why"; exit 1; }
} > pulled &
puller=$!${jobImage !== undefined && IMAGE.test(jobImage) ? ahead : ""}`
}

/** File on a VM with the progress of the pull of the agent's image. */
const PULL_LOG = "pull.log"

/** Waits for the agent's image. A failure has the machine's own words: a registry that rejects, a full disk. */
const PULLED = `if ! wait $puller; then
  within=$(head -n 1 pulled) why=$(tail -n +2 pulled)
  case $why in *'no space left'*) fail DiskFull "the disk has no room for the agent image" ;; esac
  fail AgentUnavailable "the agent image was not pulled"
fi`

/** Runs the agent in the host's network, because it polls the metadata service for preemption notices. */
function runAgent(proxy: VmProxy | undefined): string {
  // Docker takes the values from the script's own variables.
  const variables = proxy === undefined ? [] : variablesOf(proxy).map((one) => `-e ${one.split("=", 1)}`)
  return [
    // Root owns the engine's socket, and the image's own user has no rights. The whole program would take twice the
    // memory.
    `docker run --rm --name berth-agent --user 0 --entrypoint ${NODE} --network host --log-driver none`,
    ...variables,
    "--volume /var/run/docker.sock:/var/run/docker.sock",
    `--volume ${AGENT_DATA_DIR}:${AGENT_DATA_DIR}`,
    // Sockets of volume drivers, which the engine and the agent use.
    "--volume /run/docker/plugins:/run/docker/plugins",
    `$image /berth/agent.mjs agent --runtime docker --data-dir ${AGENT_DATA_DIR}`,
  ].join(" ")
}

/**
 * Returns a script that runs the agent, and ends the VM after it. An agent that has run has keys: then the unit restarts
 * it. Without keys the image does not run here, for example because it is for another architecture. Only the engine's own
 * errors are retried (https://docs.docker.com/reference/cli/docker/container/run/#exit-status).
 */
function runScript(proxy: VmProxy | undefined): string {
  return `end=$(($(age) + ${READY_SECONDS}))
until ${runAgent(proxy)} 2> said; do
  code=$? why=$(cat said)
  echo "$why"
  docker rm -f berth-agent > /dev/null 2>&1
  [ ! -e agent/keys.json ] || exit 1
  [ $code -eq ${ENGINE_ERROR} ] && [ $(age) -lt $end ] ||
    fail AgentUnavailable "the agent image does not run on this $(uname -m) machine"
  sleep 1
done
end_vm`
}

/** Exit code of docker run for an error of the engine. */
const ENGINE_ERROR = 125
