(* Discrete Laplace noise on the integers, P[N = z] = (1 - a)/(1 + a) a^|z| with a = exp(-1/scale):
   its distribution function, its ratio, its sum, and the tail of a difference of two.
   dptopk._internal.tails, laplace_tail and laplace_difference_tail; docs/notes/discrete-laplace.md *)
From mathcomp Require Import all_ssreflect all_algebra ring zify.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Laplace.
Variables (R : archiFieldType) (a : R).
Hypothesis a01 : 0 < a < 1.
Let a0 : 0 < a. Proof. by case/andP: a01. Qed.
Let a1 : a < 1. Proof. by case/andP: a01. Qed.
Let an : a != 0. Proof. by rewrite gt_eqF. Qed.
Let b0 : 0 < 1 + a. Proof. exact: addr_gt0 ltr01 a0. Qed.
Let bn : 1 + a != 0. Proof. by rewrite gt_eqF. Qed.
Let pow0 n : 0 < a ^+ n. Proof. exact: exprn_gt0. Qed.
Let pow1 n : a ^+ n <= 1. Proof. by rewrite exprn_ile1 // ltW. Qed.
Let shrink m n : (m <= n)%N -> a ^+ n <= a ^+ m.
Proof. by move=> mn; apply: ler_wiexpn2l => //; apply: ltW. Qed.

Let inv0 n : 0 <= (1 + a) ^- n.
Proof. by rewrite invr_ge0 exprn_ge0 // ltW. Qed.
Let inv1 : 0 <= (1 + a)^-1. Proof. by rewrite invr_ge0 ltW. Qed.
Let w0 : 0 <= (1 - a) / (1 + a). Proof. by rewrite mulr_ge0 // subr_ge0 ltW. Qed.
Let pow n : 0 <= a ^+ n. Proof. exact: ltW. Qed.

Definition laplace (z : int) : R := (1 - a) / (1 + a) * a ^+ `|z|%N.
(* P[N <= z] *)
Definition below (z : int) : R :=
  match z with Posz n => 1 - a ^+ n.+1 / (1 + a) | Negz n => a ^+ n.+1 / (1 + a) end.

Lemma laplace_ge0 z : 0 <= laplace z.
Proof. by rewrite mulr_ge0 ?divr_ge0 ?subr_ge0 ?exprn_ge0 // ltW. Qed.

Lemma below_step z : below (z + 1) = below z + laplace (z + 1).
Proof.
case: z => n.
  rewrite -PoszD addn1 /below /laplace /= !exprS.
  by move: (a ^+ n) => x; field; rewrite bn.
case: n => [|n].
  have -> : Negz 0 + 1 = 0%:Z by [].
  by rewrite /below /laplace /= expr0 !expr1; field; rewrite bn.
have -> : Negz n.+1 + 1 = Negz n by rewrite !NegzE -addn1 PoszD opprD addrNK.
rewrite /below /laplace /= !exprS.
by move: (a ^+ n) => x; field; rewrite bn.
Qed.

Lemma below_ge0 z : 0 <= below z.
Proof.
case: z => n /=; last by rewrite divr_ge0 ?exprn_ge0 // ltW.
rewrite subr_ge0 ler_pdivr_mulr // mul1r (le_trans (pow1 n.+1)) // ler_addl ltW //.
Qed.

Lemma below_le1 z : below z <= 1.
Proof.
case: z => n /=; first by rewrite ler_subl_addr ler_addl divr_ge0 ?exprn_ge0 // ltW.
by rewrite ler_pdivr_mulr // mul1r (le_trans (pow1 n.+1)) // ler_addl ltW.
Qed.

Lemma below_mono z w : z <= w -> below z <= below w.
Proof.
move=> zw; have -> : w = z + `|w - z|%N%:Z by rewrite gez0_abs ?subr_ge0 // addrC subrK.
elim: `|w - z|%N => [|n IH]; first by rewrite addr0.
by rewrite -addn1 PoszD addrA below_step (le_trans IH) // ler_addl laplace_ge0.
Qed.

(* A move by n changes the mass of a point by a factor of at most a^n, and what lies below it too. *)
Lemma laplace_ratio z w n : (`|w| <= `|z| + n)%N -> a ^+ n * laplace z <= laplace w.
Proof.
move=> h; rewrite /laplace mulrCA -exprD addnC; apply: ler_wpmul2l; last exact: shrink.
by rewrite divr_ge0 ?subr_ge0 // ltW.
Qed.

Lemma laplace_up z n : a ^+ n * laplace z <= laplace (z - n%:Z).
Proof. by apply: laplace_ratio; clear; lia. Qed.
Lemma laplace_down z n : a ^+ n * laplace (z - n%:Z) <= laplace z.
Proof. by apply: laplace_ratio; clear; lia. Qed.

Lemma below_down z n : a ^+ n * below z <= below (z - n%:Z).
Proof.
elim: n => [|n IH]; first by rewrite mul1r subr0.
have one w : a * below w <= below (w - 1).
  case: w => [[|k]|k].
  - rewrite (_ : 0%:Z - 1 = Negz 0) // /below !expr1 le_eqVlt; apply/orP; left; apply/eqP.
    by field; rewrite bn.
  - rewrite (_ : k.+1%:Z - 1 = k%:Z) /below; last by clear; lia.
    rewrite [a ^+ k.+2]exprS -subr_ge0.
    have -> : 1 - a ^+ k.+1 / (1 + a) - a * (1 - a * a ^+ k.+1 / (1 + a)) = (1 - a) * (1 - a ^+ k.+1).
      by field; rewrite bn.
    by rewrite mulr_ge0 // subr_ge0 // ltW.
  rewrite (_ : Negz k - 1 = Negz k.+1) /below; last by clear; lia.
  by rewrite [a ^+ k.+2]exprS -mulrA.
have -> : z - n.+1%:Z = z - n%:Z - 1 by clear; lia.
apply: le_trans (one _); rewrite exprS -mulrA.
by apply: ler_wpmul2l; first exact: ltW.
Qed.

(* Runs of integers: s, s + 1, ..., s + n - 1. *)
Lemma laplace_run s n : \sum_(i < n) laplace (s + i%:Z) = below (s + n%:Z - 1) - below (s - 1).
Proof.
elim: n => [|n IH]; first by rewrite big_ord0 addr0 subrr.
rewrite big_ord_recr /= IH.
have -> : s + n.+1%:Z - 1 = s + n%:Z - 1 + 1 by clear; lia.
rewrite below_step.
have -> : s + n%:Z - 1 + 1 = s + n%:Z by clear; lia.
by rewrite addrAC.
Qed.

Lemma laplace_run_above s t n :
  \sum_(i < n | t < s + i%:Z) laplace (s + i%:Z) =
  below (Num.max (s + n%:Z - 1) (Num.max t (s - 1))) - below (Num.max t (s - 1)).
Proof.
elim: n => [|n IH].
  rewrite big_ord0; set u := Num.max t (s - 1).
  have -> : Num.max (s + 0%:Z - 1) u = u by rewrite /u; clear; lia.
  by rewrite subrr.
rewrite big_mkcond big_ord_recr /= -big_mkcond IH; set u := Num.max t (s - 1).
case: ifP => h.
  have -> : Num.max (s + n.+1%:Z - 1) u = s + n%:Z by rewrite /u; clear -h; lia.
  have -> : Num.max (s + n%:Z - 1) u = s + n%:Z - 1 by rewrite /u; clear -h; lia.
  rewrite addrAC; congr (_ - _).
  have e : s + n%:Z = s + n%:Z - 1 + 1 by clear; lia.
  by rewrite [in RHS]e below_step -e.
rewrite addr0; congr (below _ - _); rewrite /u; clear -h; lia.
Qed.

(* P[N1 - N0 > c], in closed form: what [difference] sums to. *)
Definition difference c z := laplace z * (1 - below (z + c%:Z)).
Definition tail c : R :=
  a ^+ c.+1 / (1 + a) ^+ 2 * ((1 - a) * c.+1%:R + a + (1 + a ^+ 2) / (1 + a)).
(* The same from z on. *)
Definition tail_from (c : nat) (z : int) : R :=
  match z with
  | Posz n => a ^+ (c.+1 + n + n) / (1 + a) ^+ 3
  | Negz n =>
      if (n <= c)%N then a ^+ c.+1 / (1 + a) ^+ 3 + n.+1%:R * ((1 - a) / (1 + a) * (a ^+ c.+1 / (1 + a)))
      else tail c - (a ^+ n.+2 / (1 + a) - a ^+ (n + 4 + (n - c)) / (1 + a) ^+ 3)
  end.

Lemma difference_ge0 c z : 0 <= difference c z.
Proof. by rewrite mulr_ge0 ?laplace_ge0 // subr_ge0 below_le1. Qed.

Lemma below_pred k : below (k%:Z - 1) = 1 - a ^+ k / (1 + a).
Proof.
case: k => [|k]; last by rewrite (_ : k.+1%:Z - 1 = k) //; clear; lia.
by rewrite /= expr0 expr1; field; rewrite bn.
Qed.

Lemma tail_step c z : tail_from c z = difference c z + tail_from c (z + 1).
Proof.
case: z => n.
  rewrite -PoszD addn1 /tail_from /difference /laplace -PoszD /below /=.
  have -> : a ^+ (c.+1 + n.+1 + n.+1) = a ^+ c.+1 * a ^+ n * a ^+ n * a ^+ 2.
    by rewrite -!exprD; congr (_ ^+ _); clear; lia.
  have -> : a ^+ (c.+1 + n + n) = a ^+ c.+1 * a ^+ n * a ^+ n by rewrite -!exprD.
  have -> : a ^+ (n + c).+1 = a ^+ c.+1 * a ^+ n by rewrite -!exprD; congr (_ ^+ _); clear; lia.
  by move: (a ^+ c.+1) (a ^+ n) => x y; field; rewrite bn.
have flat k : (k <= c)%N -> difference c (Negz k) = (1 - a) / (1 + a) * (a ^+ c.+1 / (1 + a)).
  move=> kc; rewrite /difference /laplace (_ : Negz k + c%:Z = (c - k)%:Z - 1); last by clear -kc; lia.
  rewrite below_pred (_ : c.+1 = (k.+1 + (c - k))%N); last by clear -kc; lia.
  rewrite exprD (_ : `|Negz k|%N = k.+1) //.
  by move: (a ^+ k.+1) (a ^+ _) => x y; field; rewrite bn.
have steep k : (c < k)%N ->
    difference c (Negz k) = (1 - a) / (1 + a) * (a ^+ k.+1 - a ^+ (k.+2 + (k - c)) / (1 + a)).
  move=> kc; rewrite /difference /laplace (_ : Negz k + c%:Z = Negz (k - c)); last by clear -kc; lia.
  rewrite (_ : (k.+2 + (k - c) = k.+1 + (k - c).+1)%N); last by clear; lia.
  rewrite exprD (_ : `|Negz k|%N = k.+1) //= .
  by move: (a ^+ k.+1) (a ^+ _) => x y; field; rewrite bn.
case: n => [|n].
  rewrite flat // (_ : Negz 0 + 1 = 0%:Z) // /tail_from leq0n !addn0 mul1r.
  by rewrite addrC.
rewrite (_ : Negz n.+1 + 1 = Negz n); last by clear; lia.
case: (leqP n.+1 c) => nc.
  rewrite flat // /tail_from nc (ltnW nc).
  have -> : n.+2%:R = n.+1%:R + 1 :> R by rewrite -[in LHS]addn1 natrD.
  by ring.
rewrite steep // /tail_from leqNgt nc /=.
case: (leqP n c) => nc'.
  have <- : n = c by clear -nc nc'; lia.
  have -> : a ^+ (n.+1 + 4 + (n.+1 - n)) = a ^+ n.+1 * a ^+ 5 by rewrite -!exprD; congr (_ ^+ _); clear; lia.
  have -> : a ^+ (n.+3 + (n.+1 - n)) = a ^+ n.+1 * a ^+ 3 by rewrite -!exprD; congr (_ ^+ _); clear; lia.
  have -> : a ^+ n.+3 = a ^+ n.+1 * a ^+ 2 by rewrite -!exprD; congr (_ ^+ _); clear; lia.
  by rewrite [a ^+ n.+2]exprS /tail; move: (a ^+ n.+1) (n.+1%:R) => x y; field; rewrite bn.
have -> : a ^+ (n.+1 + 4 + (n.+1 - c)) = a ^+ (n + 4 + (n - c)) * a ^+ 2.
  by rewrite -!exprD; congr (_ ^+ _); clear -nc'; lia.
have -> : a ^+ (n.+3 + (n.+1 - c)) = a ^+ (n + 4 + (n - c)) by congr (_ ^+ _); clear -nc'; lia.
by rewrite [a ^+ n.+3]exprS; move: (a ^+ (_ + _)) (a ^+ n.+2) (tail c) => x y w; field; rewrite bn.
Qed.

Lemma tail_from_ge0 c z : 0 <= tail_from c z.
Proof.
case: z => n; first by apply: mulr_ge0.
elim: n => [|n IH]; rewrite tail_step addr_ge0 ?difference_ge0 //.
  by rewrite (_ : Negz 0 + 1 = 0%:Z) //; apply: mulr_ge0.
by rewrite (_ : Negz n.+1 + 1 = Negz n) //; clear; lia.
Qed.

Lemma tail_from_tail c z : tail_from c z <= tail c.
Proof.
have less : a ^+ c.+1 / (1 + a) ^+ 3 + c.+1%:R * ((1 - a) / (1 + a) * (a ^+ c.+1 / (1 + a))) <= tail c.
  have e : a ^+ c.+1 / (1 + a) ^+ 3 + c.+1%:R * ((1 - a) / (1 + a) * (a ^+ c.+1 / (1 + a)))
         + a ^+ c.+1 * a * (1 + a + a) / (1 + a) ^+ 3 = tail c.
    by rewrite /tail; move: (a ^+ c.+1) (c.+1%:R) => x y; field; rewrite bn.
  rewrite -e ler_addl; apply: mulr_ge0 => //; apply: mulr_ge0; first by rewrite mulr_ge0 // ltW.
  by rewrite !addr_ge0 ?ler01 // ltW.
have flat : 0 <= (1 - a) / (1 + a) * (a ^+ c.+1 / (1 + a)) by apply: mulr_ge0 => //; apply: mulr_ge0.
case: z => n.
  apply: (@le_trans _ _ (a ^+ c.+1 / (1 + a) ^+ 3)).
    by apply: ler_wpmul2r => //; apply: shrink; clear; lia.
  by apply: le_trans less; rewrite ler_addl; apply: mulr_ge0 => //; apply: ler0n.
rewrite /tail_from; case: leqP => nc.
  apply: le_trans less; rewrite ler_add2l; apply: ler_wpmul2r => //.
  by rewrite ler_nat.
rewrite ler_subl_addr ler_addl subr_ge0.
apply: ler_pmul => //; first by apply: shrink; clear -nc; lia.
rewrite lef_pinv ?posrE ?exprn_gt0 // -[X in X <= _]expr1.
by apply: ler_weexpn2l; rewrite // ler_addl ltW.
Qed.

Theorem slot_laplace_tail c s n : \sum_(i < n) difference c (s + i%:Z) <= tail c.
Proof.
have -> : \sum_(i < n) difference c (s + i%:Z) = tail_from c s - tail_from c (s + n%:Z).
  elim: n => [|n IH]; first by rewrite big_ord0 addr0 subrr.
  rewrite big_ord_recr /= IH [tail_from c (s + n%:Z)]tail_step.
  by rewrite (_ : s + n%:Z + 1 = s + n.+1%:Z); [ring|clear; lia].
by apply: le_trans (tail_from_tail c s); rewrite ler_subl_addr ler_addl tail_from_ge0.
Qed.

(* Little is left outside of long runs. *)
Lemma powers e : 0 < e -> exists n, a ^+ n < e.
Proof.
move=> e0; pose h := a^-1 - 1.
have h0 : 0 < h by rewrite subr_gt0 invf_gt1.
have bern n : 1 + n%:R * h <= a ^- n.
  elim: n => [|n IH]; first by rewrite mul0r addr0 invr1.
  rewrite exprS invfM; apply: (@le_trans _ _ (a^-1 * (1 + n%:R * h))); last first.
    by apply: ler_wpmul2l => //; rewrite invr_ge0 ltW.
  have -> : a^-1 = 1 + h by rewrite /h addrC subrK.
  have -> : n.+1%:R = n%:R + 1 :> R by rewrite -[in LHS]addn1 natrD.
  have -> : (1 + h) * (1 + n%:R * h) = 1 + (n%:R + 1) * h + n%:R * h * h by ring.
  by rewrite ler_addl !mulr_ge0 ?ler0n // ltW.
have [n Hn] : exists n : nat, e^-1 / h < n%:R.
  by exists (Num.bound (e^-1 / h)); apply: archi_boundP; rewrite divr_ge0 ?invr_ge0 // ltW.
exists n; have : e^-1 < a ^- n.
  apply: lt_le_trans (bern n); move: Hn; rewrite ltr_pdivr_mulr // => Hn.
  by apply: (lt_trans Hn); rewrite ltr_addr ltr01.
by rewrite ltf_pinv ?posrE // exprn_gt0.
Qed.

Lemma below_far e : 0 < e -> exists K, forall k, (K <= k)%N -> 1 - e <= below k%:Z /\ below (Negz k) <= e.
Proof.
move=> e0; have [K HK] := powers e0; exists K => k Kk.
have small : a ^+ k.+1 / (1 + a) <= e.
  rewrite ler_pdivr_mulr //; apply: (@le_trans _ _ (a ^+ K)); first by apply: shrink; rewrite leqW.
  by apply: (le_trans (ltW HK)); rewrite ler_pmulr // ler_addl ltW.
by split=> //=; rewrite ler_add2l ler_opp2.
Qed.
End Laplace.
