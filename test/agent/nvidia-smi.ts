/** GPUs that a stand-in for NVIDIA's tool shows. */
export interface Gpus {
  count: number
  /** Number of cards among them that the driver has lost. Default: 0. */
  lost?: number
  /** Seconds that each call takes until a call with `-pm 1` has ended, as a driver without persistence mode. Default: 0. */
  initSeconds?: number
  /** State and status of the fabric, for each call with `-q`; the last one stays. Default: N/A. */
  fabric?: readonly (readonly [state: string, status: string])[]
}

/** Fabric of GPUs while they register with the fabric manager, and after it. */
export const IN_PROGRESS = ["In Progress", "N/A"] as const
export const COMPLETED = ["Completed", "Success"] as const
const NO_FABRIC = ["N/A", "N/A"] as const

/**
 * Returns a shell script that stands in for `nvidia-smi` in the formats of driver 570. The section Fabric is as in NVIDIA's
 * guide (https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html#initializing-nvswitch-and-nvlink), and
 * the line of a lost card as in https://github.com/NVIDIA/nvidia-container-toolkit/issues/69.
 */
export function nvidiaSmi({ count, lost = 0, initSeconds = 0, fabric = [NO_FABRIC] }: Gpus): string {
  const cards = Array.from({ length: count - lost }, (_, index) => index)
  const list = [
    ...cards.map(
      (index) => `GPU ${index}: NVIDIA H100 80GB HBM3 (UUID: GPU-3a6b1e0c-9d1f-4c55-8c3e-00000000000${index})`,
    ),
    ...Array.from({ length: lost }, () => "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error"),
  ]
  const sections = fabric.map(([state, status]) => [
    "==============NVSMI LOG==============",
    `Attached GPUs                             : ${count}`,
    ...cards.flatMap((index) => [
      `GPU 00000000:5${index}:00.0`,
      "    Product Name                          : NVIDIA H100 80GB HBM3",
      "    Platform Info",
      "        GPU Fabric GUID                   : 0x7215545ecf79e88f",
      "    GPU Recovery Action                   : None",
      "    Fabric",
      `        State                             : ${state}`,
      `        Status                            : ${status}`,
      "        CliqueId                          : 0",
      "        ClusterUUID                       : 00000000-0000-0000-0000-000000000000",
      "    Clocks Event Reasons",
      "        Idle                              : Active",
    ]),
  ])
  const print = (lines: readonly string[]): string => `cat <<'END'\n${lines.join("\n")}\nEND`
  return `state=\${NVIDIA_STATE:-/run/nvidia}
mkdir -p $state
[ -e $state/persistent ] || sleep ${initSeconds}
case "$*" in
"-pm 1") touch $state/persistent; echo "All done.";;
-L) ${print(count === 0 ? ["No devices were found"] : list)}
;;
-q) echo >> $state/asked
case $(wc -l < $state/asked) in
${sections.map((lines, index) => `${index + 1 === sections.length ? "*" : index + 1}) ${print(lines)}\n;;`).join("\n")}
esac
;;
esac`
}
