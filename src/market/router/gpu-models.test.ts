import { expect, test } from "vitest"
import { isModel, isNvidia, parseModel } from "./gpu-models.ts"

/** As the catalogue has them. */
const CARDS: [model: string, vramGib: number][] = [
  ["A10", 24],
  ["A100", 40],
  ["A100-80GB", 80],
  ["A10G", 24],
  ["B200", 179],
  ["GB200", 192],
  ["H100", 80],
  ["H100", 94],
  ["H200", 141],
  ["K80", 12],
  ["L4", 24],
  ["L40S", 48],
  ["M60", 8],
  ["P4", 8],
  ["P100", 16],
  ["RTX-PRO-4500", 32],
  ["RTX-PRO-6000", 96],
  ["T4", 16],
  ["T4G", 16],
  ["V100", 16],
  ["V100-32GB", 32],
]

test.each<[string, string[]]>([
  ["A100", ["A100/40", "A100-80GB/80"]],
  ["a100-80gb", ["A100-80GB/80"]],
  ["A100 80GB", ["A100-80GB/80"]],
  ["a100_80g", ["A100-80GB/80"]],
  ["A10080GB", ["A100-80GB/80"]],
  ["NVIDIA A100-SXM4-80GB", ["A100-80GB/80"]],
  ["NVIDIA A100 80GB PCIe", ["A100-80GB/80"]],
  ["A100-PCIE-40GB", ["A100/40"]],
  ["nvidia-a100-40gb", ["A100/40"]],
  ["nvidia-tesla-a100", ["A100/40", "A100-80GB/80"]],
  ["H100", ["H100/80", "H100/94"]],
  ["h100-80gb", ["H100/80"]],
  ["NVIDIA H100 80GB HBM3", ["H100/80"]],
  ["nvidia-h100-mega-80gb", ["H100/80"]],
  ["H100-SXM", ["H100/80"]],
  ["H100 NVL", ["H100/94"]],
  ["H200", ["H200/141"]],
  ["h200-141gb", ["H200/141"]],
  ["B200-180GB", ["B200/179"]],
  ["GB200", ["GB200/192"]],
  ["A10", ["A10/24"]],
  ["A10G", ["A10G/24"]],
  ["nvidia-a10g", ["A10G/24"]],
  ["T4", ["T4/16"]],
  ["nvidia-tesla-t4", ["T4/16"]],
  ["Tesla T4", ["T4/16"]],
  ["T4G", ["T4G/16"]],
  ["nvidia-l4", ["L4/24"]],
  ["l40s", ["L40S/48"]],
  ["L40", []],
  ["V100", ["V100/16", "V100-32GB/32"]],
  ["V100-32GB", ["V100-32GB/32"]],
  ["Tesla V100-SXM2-16GB", ["V100/16"]],
  ["RTX-PRO-6000", ["RTX-PRO-6000/96"]],
  ["nvidia-rtx-pro-6000", ["RTX-PRO-6000/96"]],
  ["NVIDIA RTX PRO 6000 Blackwell Server Edition", ["RTX-PRO-6000/96"]],
  ["rtx pro 4500", ["RTX-PRO-4500/32"]],
  ["P4", ["P4/8"]],
  ["p100", ["P100/16"]],
  ["A100-60GB", []],
  ["H1000", []],
  ["", []],
])("%s means %j", (name, cards) => {
  const wanted = parseModel(name)
  const found = CARDS.filter(([model, vramGib]) => isModel(wanted, parseModel(model).base, vramGib))
  expect(found.map((card) => card.join("/"))).toEqual(cards)
})

test("accelerators of others carry their maker's name", () => {
  expect(["A100", "AMD:MI300X", "AWS:Trainium1"].map(isNvidia)).toEqual([true, false, false])
})
